"""How a member gets a connection to rank 0: names, addresses, and pauses that grow. Never waits, never gives up.

Names are looked up in a thread of their own, because the C library's resolver can block for half a minute. They are
looked up anew for every round: a pod's name appears late, and may still mean the pod of the attempt before. Once rank 0
has answered at an address, only that one is tried: its pod keeps it as long as it lives.
"""

from __future__ import annotations

import errno
import os
import random
import socket
import threading
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from oarlock_trainer.agent.link.sparse_log import SparseLog

if TYPE_CHECKING:
    from oarlock_trainer.agent.link.loop import Loop


_USUAL_SECONDS = 60.0
"""What pods of one gang may start apart without a word about it."""


@dataclass(frozen=True, slots=True)
class _Address:
    family: int
    target: Any


@dataclass(frozen=True, slots=True)
class _Answer:
    """What the resolver said: addresses, or why there are none."""

    addresses: list[_Address]
    trouble: str = ""


class Dialer:
    """Dials from its first turn on. `heartbeat`: the link's, in seconds; pauses are measured by it."""

    def __init__(self, host: str, port: int, *, loop: Loop, heartbeat: float) -> None:
        self._host, self._port = host, port
        self._loop, self._heartbeat = loop, heartbeat
        self._log = SparseLog(quiet_until=_USUAL_SECONDS)
        self._answers: deque[_Answer] = deque()
        self._asking = False
        self._left: list[_Address] = []
        self._current: _Address | None = None
        self._proven: _Address | None = None
        self._pause = 0.0
        self._due_at = loop.now

    @property
    def seconds_left(self) -> float:
        """Until the next dial() can have something."""
        return self._heartbeat if self._asking else max(self._due_at - self._loop.now, 0.0)

    def dial(self) -> socket.socket | None:
        """A socket that connects, when one is due; it is the caller's."""
        if self._asking and self._answers:
            self._asking = False
            answer = self._answers.popleft()
            self._left = answer.addresses
            if not answer.addresses:
                self.failed(answer.trouble)
        if self._asking or self._loop.now < self._due_at:
            return None
        if not self._left and self._proven:
            self._left = [self._proven]
        if not self._left:
            self._asking = True
            threading.Thread(target=self._ask, name="gang-link-names", daemon=True).start()
            return None
        return self._connect(self._left.pop(0))

    def failed(self, trouble: str) -> None:
        """The last dialled socket led nowhere: the next address is due at once, the next round after a pause."""
        if self._left:
            self._due_at = self._loop.now
            return
        longest = self._heartbeat * (0.5 if self._proven else 2.0)
        self._pause = min(max(2 * self._pause, self._heartbeat / 10), longest)
        self._due_at = self._loop.now + self._pause * random.uniform(0.5, 1.0)  # noqa: S311 - no secret
        if not self._proven:
            self._log.warning(f"the gang link waits for pod 0: {trouble}", now=self._loop.now)

    def succeeded(self) -> None:
        """Rank 0 answered there. Should that connection end, another one is due at once, but not many in a row."""
        self._proven, self._left, self._pause = self._current, [], 0.0
        self._due_at = self._loop.now + self._heartbeat * random.uniform(0.1, 0.2)  # noqa: S311

    def forget(self) -> None:
        """Rank 0's pod is lost: the next one has the same name, and another address."""
        self._proven, self._left = None, []

    def _connect(self, address: _Address) -> socket.socket | None:
        self._current = address
        try:
            end = socket.socket(address.family, socket.SOCK_STREAM)
        except OSError as error:  # no such family on this node
            self.failed(error.strerror or str(error))
            return None
        end.settimeout(0)
        code = end.connect_ex(address.target)
        if code in (0, errno.EINPROGRESS):
            return end
        end.close()
        self.failed(os.strerror(code))
        return None

    def _ask(self) -> None:
        try:
            found = socket.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:  # UnicodeError: no name that DNS can have
            reason = error.strerror if isinstance(error, OSError) else None
            self._answers.append(_Answer([], f"{self._host}: {reason or error}"))
        else:
            self._answers.append(_Answer([_Address(family, target) for family, *_, target in found]))
        self._loop.orders_notifier.notify()
