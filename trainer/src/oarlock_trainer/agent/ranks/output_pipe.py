"""One stream of what ranks print: passed through, given to whoever keeps it, and its end remembered.

Of standard error that end matters: native code says there why it aborts, and only there.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

KEPT = 16384
"""Bytes that are remembered."""
_CHUNK = 65536
_PASS_ON_SECONDS = 0.2


class OutputPipe:
    """A pipe whose bytes go on to this process's own standard output (`onto` 1) or error (2), and to `keep`.

    `descriptor` is for the processes that write: they wait as soon as nobody reads, so `keep` must not.
    """

    def __init__(self, onto: int, keep: Callable[[bytes], None] = lambda _: None) -> None:
        self._onto, self._keep = onto, keep
        self._readable, self.descriptor = os.pipe()
        os.set_blocking(self._readable, False)
        self._chunks: deque[bytes] = deque()
        self._kept = 0
        self._closed_here = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._pass_on, name=f"ranks-output-{onto}", daemon=True)
        self._thread.start()

    @property
    def text(self) -> str:
        """The last KEPT bytes of all that has been written until now, in whole lines, as far as they are text.

        Of a line that was cut nobody could tell any more whether it held a secret.
        """
        self._take()
        with self._lock:
            written = b"".join(self._chunks)
        if len(written) > KEPT:
            written = written[-KEPT:].partition(b"\n")[2]
        return written.decode(errors="replace")

    def forget(self) -> None:
        """Remember only what is written from now on."""
        self._take()
        with self._lock:
            self._chunks.clear()
            self._kept = 0

    def close_here(self) -> None:
        """Leave writing to the others: the pipe then ends with the last of them. May be repeated."""
        if not self._closed_here:
            self._closed_here = True
            os.close(self.descriptor)

    def finish(self) -> None:
        """Wait a moment until all that was written has been passed on."""
        self.close_here()
        self._thread.join(_PASS_ON_SECONDS)

    def _pass_on(self) -> None:
        while select.select([self._readable], [], []) and self._take():
            pass

    def _take(self) -> bool:
        """Pass on what is there; False at the pipe's end."""
        with self._lock, contextlib.suppress(BlockingIOError):
            while chunk := os.read(self._readable, _CHUNK):
                self._remember(chunk)
                self._keep(chunk)
                with contextlib.suppress(OSError):  # our own is gone: nobody reads anyway
                    while chunk:
                        chunk = chunk[os.write(self._onto, chunk) :]
            return False
        return True

    def _remember(self, chunk: bytes) -> None:
        self._chunks.append(chunk)
        self._kept += len(chunk)
        while self._kept - len(self._chunks[0]) >= KEPT:
            self._kept -= len(self._chunks.popleft())
