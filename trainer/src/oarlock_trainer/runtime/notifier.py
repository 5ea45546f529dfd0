"""How one thread wakes another that waits for descriptors: a pipe in which a byte means "look again"."""

from __future__ import annotations

import contextlib
import os


class Notifier:
    """Open for as long as anybody holds it, so that a late notification never lands in somebody else's descriptor.

    `descriptor` is readable from the first notify() until clear().
    """

    def __init__(self) -> None:
        self.descriptor, self._writes = os.pipe()
        for end in (self.descriptor, self._writes):
            os.set_blocking(end, False)

    def notify(self) -> None:
        """Wake whoever waits. From any thread; never blocks."""
        with contextlib.suppress(BlockingIOError):  # full: it is readable already
            os.write(self._writes, b"!")

    def clear(self) -> None:
        """To be called before looking, not after: what comes meanwhile notifies again."""
        with contextlib.suppress(BlockingIOError):
            while os.read(self.descriptor, 4096):
                pass

    def __del__(self) -> None:
        for end in (self.descriptor, self._writes):
            with contextlib.suppress(OSError):
                os.close(end)
