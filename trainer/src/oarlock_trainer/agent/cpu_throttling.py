"""How often this pod's CPU limit holds its processes back, by what the kernel counts: for whoever asks why a rank is slow."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from oarlock_trainer.runtime import cgroup

if TYPE_CHECKING:
    from collections.abc import Callable

EVERY_SECONDS = 60.0
"""Between two looks."""
_WORTH_TELLING = 0.1
"""The share of the limit's periods (100 ms each, mostly) in which processes had to wait for the next one."""


class CpuThrottling:
    """Of one pod. `read` gives the periods of its limit so far and those in which it was used up, None without a limit."""

    def __init__(self, read: Callable[[], tuple[int, int] | None] = cgroup.cpu_periods) -> None:
        self._read = read
        self._known: tuple[int, int] | None = None
        self._looked_at = -math.inf
        self._words = ""

    def words(self, now: float) -> str:
        """What is to be told of the minute before the last look; empty where there is nothing."""
        if now - self._looked_at < EVERY_SECONDS:
            return self._words
        before, self._known, self._looked_at = self._known, self._read(), now
        self._words = ""
        if before and self._known and (periods := self._known[0] - before[0]) > 0:
            share = (self._known[1] - before[1]) / periods
            if share >= _WORTH_TELLING:
                # In tens, so that it is not another sentence each minute.
                self._words = f"its CPU limit is used up in about {round(share, 1):.0%} of its periods"
        return self._words
