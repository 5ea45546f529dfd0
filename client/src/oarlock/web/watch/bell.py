"""Rung by a watch's thread, heard by a stream on the event loop."""

from __future__ import annotations

import asyncio
from contextlib import suppress


class Bell:
    """However often it is rung, one who comes late hears it once: nothing queues up."""

    def __init__(self) -> None:
        """On the event loop that will listen."""
        self._loop = asyncio.get_running_loop()
        self._rung = asyncio.Event()

    def ring(self) -> None:
        """From any thread."""
        with suppress(RuntimeError):  # the loop is closed: nobody listens
            self._loop.call_soon_threadsafe(self._rung.set)

    async def heard(self, seconds: float) -> bool:
        """Whether it was rung since the last call, or is within so many seconds."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._rung.wait(), seconds)
        rung = self._rung.is_set()
        self._rung.clear()
        return rung
