"""How far a long fetch is, told to the agent: signs of life, and now and then a line for people."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from oarlock_trainer.runtime import channel
from oarlock_trainer.runtime.heartbeat import Heartbeat

if TYPE_CHECKING:
    from collections.abc import Callable

_APART = 5.0


class FetchProgress:
    """Called with the bytes that are there, of how many."""

    def __init__(self, what: str, clock: Callable[[], float] = time.monotonic) -> None:
        """`what` is fetched: the job's field that names it."""
        self._what = what
        self._clock = clock
        self._beat = Heartbeat(clock)
        self._began: tuple[float, int] | None = None
        self._next = 0.0

    def __call__(self, done: int, total: int) -> None:
        """So many bytes of all are there."""
        self._beat()
        now = self._clock()
        if self._began is None:
            self._began, self._next = (now, done), now + _APART
        if now >= self._next:
            self._next = now + _APART
            channel.send(channel.Event.NOTE, message=self._words(done, total, now))

    def _words(self, done: int, total: int, now: float) -> str:
        since, had = self._began or (now, done)
        words = f"{self._what}: {done / 1e9:.1f} of {total / 1e9:.1f} GB fetched"
        rate = (done - had) / (now - since) if now > since else 0.0
        return f"{words}, {rate / 1e6:.0f} MB/s, {(total - done) / rate:.0f} s left" if rate else words
