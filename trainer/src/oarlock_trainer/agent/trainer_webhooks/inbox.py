"""Between the threads that receive and the loop that acts: a bounded queue, a byte in a pipe for news, and counts."""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from enum import StrEnum
from typing import TYPE_CHECKING

from oarlock_api.contract.wire import WireError
from oarlock_trainer.agent.trainer_webhooks.payloads import UnknownError, read
from oarlock_trainer.runtime.notifier import Notifier

if TYPE_CHECKING:
    from oarlock_trainer.agent.trainer_webhooks.payloads import Payload

log = logging.getLogger(__name__)

_ROOM = 1024
"""Payloads: the loop empties it several times a second, and a trainer posts a few for each step."""
_NAMED = 16
"""Unknown types that are named in the log, once each."""


class Reception(StrEnum):
    """What became of a payload."""

    TAKEN = "taken"
    IGNORED = "ignored"
    """Of a type that is not known."""
    REFUSED = "refused"
    """No payload at all."""
    LOST = "lost"
    """No room: the loop stands still."""


class Inbox:
    """`put` may be called by any thread, all else by the main one."""

    def __init__(self) -> None:
        self._notifier = Notifier()
        self._waiting: deque[Payload] = deque()
        self._counts: Counter[Reception] = Counter()
        self._named: set[str] = set()
        self._lock = threading.Lock()

    @property
    def descriptor(self) -> int:
        """Readable when something is there."""
        return self._notifier.descriptor

    @property
    def counts(self) -> dict[str, int]:
        """Payloads by what became of them."""
        with self._lock:
            return {str(kind): self._counts[kind] for kind in Reception}

    def put(self, body: bytes, content_type: str) -> Reception:
        """Understand a payload, and hand it over."""
        try:
            payload = read(body, content_type)
        except WireError:
            return self._count(Reception.REFUSED)
        except UnknownError as error:
            self._name(str(error))
            return self._count(Reception.IGNORED)
        with self._lock:
            if len(self._waiting) >= _ROOM:
                self._counts[Reception.LOST] += 1
                return Reception.LOST
            self._waiting.append(payload)
            self._counts[Reception.TAKEN] += 1
        self._notifier.notify()
        return Reception.TAKEN

    def take(self) -> list[Payload]:
        """Everything that has come since the last call, in order. Never blocks."""
        self._notifier.clear()
        with self._lock:
            payloads = list(self._waiting)
            self._waiting.clear()
        return payloads

    def _count(self, kind: Reception) -> Reception:
        with self._lock:
            self._counts[kind] += 1
        return kind

    def _name(self, kind: str) -> None:
        with self._lock:
            new = kind not in self._named and len(self._named) < _NAMED
            if new:
                self._named.add(kind)
        if new:
            log.info("the trainer's webhook told something that is not known here: %s", kind)
