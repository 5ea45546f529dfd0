"""When a checkpoint is due.

Without an interval of the job's own it follows Young's formula: sqrt(2 x stall x mean time between faults). One day
between faults is a cautious prior for a few dozen GPUs on Kubernetes; it is bounded to 1..30 minutes.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oarlock_api.checkpoint import Checkpoint

_MEAN_TIME_BETWEEN_FAULTS = 86400.0
_SHORTEST, _LONGEST = 60.0, 1800.0
_FIRST_STALL = 1.0
_PAUSE = 1.5
"""Saves that follow one another without a pause would keep the storage from everybody else."""


class Interval:
    """Decides on rank 0, which tells the others; clocks differ."""

    def __init__(self, settings: Checkpoint, *, now: float) -> None:
        """`now` in seconds on a monotonic clock."""
        self._settings = settings
        self._began = now
        self._stall = _FIRST_STALL
        self._seconds = 0.0

    def is_due(self, step: int, now: float) -> bool:
        """Tell whether to save after `step` steps."""
        if self._settings.interval_steps is not None:
            return step % self._settings.interval_steps == 0
        return now - self._began >= (self._settings.interval_seconds or automatic(self._stall, self._seconds))

    def began(self, now: float) -> None:
        """Remember that a save begins: the next one is due so long after it."""
        self._began = now

    def saved(self, *, stall: float, seconds: float) -> None:
        """Remember what a checkpoint cost: how long training stood still, and how long it took to be one."""
        self._stall, self._seconds = stall, seconds


def automatic(stall: float, seconds: float = 0.0) -> float:
    """Seconds from one save to the next, each of which costs `stall` seconds and is done after `seconds`."""
    young = math.sqrt(2.0 * stall * _MEAN_TIME_BETWEEN_FAULTS)
    return min(max(young, _SHORTEST, _PAUSE * seconds), _LONGEST)
