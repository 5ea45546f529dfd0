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


class Interval:
    """Decides on rank 0, which tells the others; clocks differ."""

    def __init__(self, settings: Checkpoint, *, now: float) -> None:
        """`now` in seconds on a monotonic clock."""
        self._settings = settings
        self._saved = now
        self._stall = _FIRST_STALL

    def is_due(self, step: int, now: float) -> bool:
        """Tell whether to save after `step` steps."""
        if self._settings.interval_steps is not None:
            return step % self._settings.interval_steps == 0
        return now - self._saved >= (self._settings.interval_seconds or automatic(self._stall))

    def saved(self, now: float, stall: float) -> None:
        """Remember that a checkpoint was committed, and what it cost in seconds."""
        self._saved, self._stall = now, stall


def automatic(stall: float) -> float:
    """Seconds between checkpoints that cost `stall` seconds each."""
    return min(max(math.sqrt(2.0 * stall * _MEAN_TIME_BETWEEN_FAULTS), _SHORTEST), _LONGEST)
