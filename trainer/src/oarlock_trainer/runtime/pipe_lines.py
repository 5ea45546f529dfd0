"""Lines from a pipe that never blocks: what child processes tell, whole or not at all."""

from __future__ import annotations

import contextlib
import os

_CHUNK = 65536


class PipeLines:
    """The reading end of a pipe. Of what never ends a line, only the last `longest` bytes are kept."""

    def __init__(self, descriptor: int, *, longest: int) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._longest = longest
        self._pending = b""

    def read(self) -> list[bytes]:
        """Lines that were completed since the last call, without their ends."""
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(self._descriptor, _CHUNK):
                self._pending += chunk
        *lines, rest = self._pending.split(b"\n")
        self._pending = rest[-self._longest :]
        return lines
