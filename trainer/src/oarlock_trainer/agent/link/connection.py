"""One TCP connection of the link: non-blocking, bounded in both directions, and never an exception for what a peer does.

Sending never waits. A peer that does not read what it is sent loses the connection once 64 KiB wait for it. The end of a
connection is always found by receive(), after everything that had arrived before it.
"""

from __future__ import annotations

import contextlib
import socket
from selectors import EVENT_READ, EVENT_WRITE
from typing import TYPE_CHECKING

from oarlock_trainer.agent.link.proof import SEAL_BYTES
from oarlock_trainer.agent.link.protocol import MAX_LINE, Frame, Lines, Refused, decode, encode

if TYPE_CHECKING:
    from collections.abc import Callable
    from selectors import BaseSelector

    from oarlock_trainer.agent.link.proof import Seal

_MOST_WAITING = 64 * MAX_LINE
"""A gang of thousands that leaves at once has its names in it: only a peer that stopped reading has more waiting."""
_BROKEN_SEAL = "a line came that was not sealed with the gang's key"
_RECEIVED_AT_ONCE = 4096
"""Bytes per turn of the loop: one that floods does not hold up the others."""


class Connection:
    """A connected or connecting socket, in the selector until close().

    `ready` is called when receive() has something to do, and may be replaced. `ended` says why nothing more will come,
    and is empty until then.
    """

    def __init__(
        self, end: socket.socket, selector: BaseSelector, *, timeout: float, ready: Callable[[Connection], None]
    ) -> None:
        self.ended = ""
        self._socket, self._selector = end, selector
        self._lines = Lines()
        self._waiting = b""
        self._finishing = self._closed = False
        self._trouble = ""
        self._seal: Seal | None = None
        self._events = EVENT_READ
        self.ready = ready
        end.settimeout(0)
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux: what is sent and never acknowledged ends the connection
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(timeout * 1000))
        selector.register(end, self._events, self._turn)

    def send(self, line: bytes) -> None:
        """Send, or keep what the socket does not take yet."""
        if self._closed or self._finishing or self._trouble:
            return
        self._waiting += self._seal.closed(line) if self._seal else line
        self._flush()
        if len(self._waiting) > _MOST_WAITING:
            self._give_up("it does not read what it is sent")

    def seal(self, seal: Seal) -> None:
        """Seal what is sent, and believe only what is sealed, from here on."""
        self._seal = seal
        self._lines.longest = MAX_LINE + SEAL_BYTES

    def greet(self, frame: Frame) -> None:
        """Send as soon as a socket that still connects has done so."""
        self._waiting += encode(frame)
        self._want(EVENT_READ | EVENT_WRITE)

    def receive(self) -> list[bytes]:
        """The lines that have arrived, each to be read in its turn. Sets `ended` where they were the last."""
        try:
            received = self._socket.recv(_RECEIVED_AT_ONCE)
        except (BlockingIOError, InterruptedError):
            return []
        except OSError as error:
            self.ended = self._trouble or error.strerror or str(error)
            return []
        if not received:
            self.ended = self._trouble or "it was closed"
            return []
        lines = self._lines.feed(received)
        if self._lines.overlong:
            self.ended = f"a line of more than {self._lines.longest} bytes came"
        return lines

    def read(self, line: bytes) -> Frame | None:
        """The frame in a line, None where it is none. Sets `ended` where its seal is broken: nothing after it counts."""
        if self.ended == _BROKEN_SEAL:
            return None
        if self._seal is None:
            return decode(line)
        if (opened := self._seal.opened(line)) is not None:
            return decode(opened)
        self.ended = _BROKEN_SEAL
        frame = decode(line)
        return frame if isinstance(frame, Refused) else None  # by one that does not know the key: for the log

    def finish(self) -> None:
        """Say that nothing more will be sent, after what waits. The peer's end then tells that it has read all."""
        self._finishing = True
        self._flush()

    def close(self) -> None:
        """Leave the selector and close; what waits is lost. May be called again."""
        if not self._closed:
            self._closed = True
            self._selector.unregister(self._socket)
            self._socket.close()

    def _turn(self, events: int) -> None:
        if events & EVENT_WRITE and not self._closed:
            self._flush()
        if events & EVENT_READ and not self._closed:  # another one's turn may have closed it meanwhile
            self.ready(self)

    def _flush(self) -> None:
        if self._closed:
            return
        try:
            while self._waiting:
                self._waiting = self._waiting[self._socket.send(self._waiting) :]
            if self._finishing:
                self._socket.shutdown(socket.SHUT_WR)
        except (BlockingIOError, InterruptedError):
            self._want(EVENT_READ | EVENT_WRITE)
        except OSError as error:
            # Not the end yet: what the peer said before it went may still wait to be read.
            self._trouble, self._waiting = self._trouble or error.strerror or str(error), b""
            self._want(EVENT_READ)
        else:
            self._want(EVENT_READ)

    def _give_up(self, trouble: str) -> None:
        self._trouble, self._waiting = trouble, b""
        self._want(EVENT_READ)
        with contextlib.suppress(OSError):  # it may not be connected
            self._socket.shutdown(socket.SHUT_RDWR)

    def _want(self, events: int) -> None:
        if events != self._events and not self._closed:
            self._events = events
            self._selector.modify(self._socket, events, self._turn)
