"""How one thread wakes another that waits for descriptors: a pipe in which a byte means "look again"."""

from __future__ import annotations

import contextlib
import os


class Bell:
    """Open for as long as anybody holds it, so that a late ring never lands in somebody else's descriptor.

    `descriptor` is readable from the first ring until hush().
    """

    def __init__(self) -> None:
        self.descriptor, self._ringing = os.pipe()
        for end in (self.descriptor, self._ringing):
            os.set_blocking(end, False)

    def ring(self) -> None:
        """Wake whoever waits. From any thread; never blocks."""
        with contextlib.suppress(BlockingIOError):  # full: it rings already
            os.write(self._ringing, b"!")

    def hush(self) -> None:
        """To be called before looking, not after: what comes meanwhile rings again."""
        with contextlib.suppress(BlockingIOError):
            while os.read(self.descriptor, 4096):
                pass

    def __del__(self) -> None:
        for end in (self.descriptor, self._ringing):
            with contextlib.suppress(OSError):
                os.close(end)
