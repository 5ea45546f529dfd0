"""The thread that writes a pod's history, so that nobody else ever waits for the output's storage.

What is to be written waits in bounded buffers. Storage that hangs or is full fills them; then the oldest goes, and the next
write that succeeds says how much is missing. Whoever hands something over never waits, and nothing raises.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Protocol

from oarlock_api.contract.log_lines import LogStream, stamped
from oarlock_trainer.runtime import clock

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

log = logging.getLogger(__name__)

FLUSH_SECONDS = 20.0
"""At the latest so long after it was printed, output is on its way to the storage: a node that dies loses less than 60 s."""
FLUSH_BYTES = 256 * 1024
"""So much is written at once, and earlier."""
MAX_BUFFERED = 4 * 1024 * 1024
MAX_LINES = 256
RETRY_SECONDS = 5.0


class Log(Protocol):
    """Where output goes."""

    def append(self, lines: bytes, *, time: str) -> None:
        """Append. Raises OSError."""


class Story(Protocol):
    """Where what happened goes."""

    def append(self, lines: Sequence[str]) -> None:
        """Append. Raises OSError."""


class HistoryWriter:
    """Writes below `output`, as soon as that exists: a job whose output was never reachable leaves nothing behind.

    `log` None: output is not kept. `begin` is what comes before the first line, such as making room; it may raise OSError,
    and is then called again. `flush_seconds`: see FLUSH_SECONDS.
    """

    def __init__(
        self,
        output: Path,
        *,
        log: Log | None,
        story: Story,
        begin: Callable[[], None] = lambda: None,
        flush_seconds: float = FLUSH_SECONDS,
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        self._output, self._log, self._story = output, log, story
        self._begin: Callable[[], None] | None = begin
        self._flush_seconds, self._retry_seconds = flush_seconds, retry_seconds
        self._changed = threading.Condition()
        self._printed: deque[bytes] = deque()
        self._buffered = self._lost = 0
        self._lines: list[str] = []
        self._closing = False
        self._failed = False
        self._flushed_at = time.monotonic()
        self._not_before = 0.0
        self._thread = threading.Thread(target=self._run, name="history", daemon=True)
        self._thread.start()

    @property
    def begun(self) -> bool:
        """Whether something could be written."""
        return self._begin is None

    def print(self, lines: bytes) -> None:
        """Take whole lines of output, any thread's."""
        if self._log is not None and lines:
            with self._changed:
                self._printed.append(lines)
                self._buffered += len(lines)
                self._drop_the_oldest()
                if self._buffered >= FLUSH_BYTES:
                    self._changed.notify()

    def tell(self, lines: Sequence[str]) -> None:
        """Take lines of the story, any thread's."""
        with self._changed:
            self._lines = [*self._lines, *lines][-MAX_LINES:]
            self._changed.notify()

    def close(self, within: float) -> None:
        """Write what is there, as far as so many seconds suffice for it."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(within)

    def _run(self) -> None:
        closing = False
        while not closing:
            with self._changed:
                while not (closing := self._closing) and (seconds := self._seconds_left()) > 0:
                    self._changed.wait(seconds)
            try:
                self._write(whole=closing)
                self._failed = False
            except OSError as error:
                self._not_before = time.monotonic() + self._retry_seconds
                if not self._failed:  # once for each outage
                    log.warning("the history lacks something, training goes on: %s", error)
                self._failed = True
            except Exception:
                log.exception("the history ends here")
                return

    def _seconds_left(self) -> float:
        """Until something is to be written."""
        now = time.monotonic()
        at_once = self._begin is not None or self._lines or self._buffered >= FLUSH_BYTES
        return max(now if at_once else self._flushed_at + self._flush_seconds, self._not_before) - now

    def _write(self, *, whole: bool) -> None:
        if self._begin is not None:
            if not self._output.is_dir():
                self._not_before = time.monotonic() + self._retry_seconds
                return
            self._begin()
            self._begin = None
        self._write_story()
        if whole or self._buffered >= FLUSH_BYTES or time.monotonic() - self._flushed_at >= self._flush_seconds:
            self._write_log()

    def _write_story(self) -> None:
        with self._changed:
            lines, self._lines = self._lines, []
        if not lines:
            return
        try:
            self._story.append(lines)
        except OSError:
            with self._changed:
                self._lines = [*lines, *self._lines][-MAX_LINES:]
            raise

    def _write_log(self) -> None:
        with self._changed:
            printed, lost = b"".join(self._printed), self._lost
            self._printed.clear()
            self._buffered = self._lost = 0
        if self._log is not None and (printed or lost):
            at = clock.timestamp()
            note = stamped(f"{lost} bytes are missing here\n".encode(), stream=LogStream.NOTE, time=at) if lost else b""
            try:
                self._log.append(note + printed, time=at)
            except OSError:
                with self._changed:
                    self._printed.appendleft(printed)
                    self._buffered += len(printed)
                    self._lost += lost
                    self._drop_the_oldest()
                raise
        self._flushed_at = time.monotonic()

    def _drop_the_oldest(self) -> None:
        while self._buffered > MAX_BUFFERED:
            oldest = self._printed.popleft()
            self._buffered -= len(oldest)
            self._lost += len(oldest)
