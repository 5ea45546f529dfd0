"""After how many steps the state goes into memory. Pure: seconds come in."""

from __future__ import annotations

import math
from collections import deque
from statistics import fmean, median

_SHARE = 0.01
"""Of the time, what snapshots may cost on Auto."""
_PAUSE = 1.5
"""As between checkpoints (checkpoint/interval.py). Also, steps beside which nothing is copied tell what a step takes."""
_FIRST = 5
"""Steps that are measured before the first snapshot."""
_REMEMBERED_STEPS, _REMEMBERED_SNAPSHOTS = 32, 8


class Rhythm:
    """Decides on rank 0, which tells the others.

    What a snapshot costs is measured: by how much the steps beside it are longer than others, and no less than the time for
    which training stood still.
    """

    def __init__(self, every: int | None) -> None:
        """`every` so many steps; None = as often as it costs no more than a hundredth of the time."""
        self._every = every
        self._quiet: deque[float] = deque(maxlen=_REMEMBERED_STEPS)
        self._costs: deque[float] = deque(maxlen=_REMEMBERED_SNAPSHOTS)
        self._beside: list[float] = []
        self._seconds = 0.0
        self._began = 0

    def is_due(self, step: int) -> bool:
        """Tell whether to keep the state after `step` steps."""
        if self._every is not None:
            return step % self._every == 0
        if len(self._quiet) < _FIRST:
            return False
        if not self._costs:
            return not self._began
        usual = median(self._quiet)
        return step - self._began >= every_steps(cost=fmean(self._costs), seconds=self._seconds, step_seconds=usual)

    def began(self, step: int) -> None:
        """Remember that the state after `step` steps is being copied."""
        self._began = step
        self._beside = []

    def stepped(self, seconds: float, *, beside: bool) -> None:
        """Remember what a step took; `beside` a snapshot."""
        (self._beside if beside else self._quiet).append(seconds)

    def ended(self, *, stall: float, seconds: float) -> None:
        """Remember what a snapshot cost: how long training stood still, and how long it took to be whole."""
        longer = sum(self._beside) - len(self._beside) * median(self._quiet) if self._quiet else 0.0
        self._costs.append(max(stall, longer))
        self._seconds = seconds


def every_steps(*, cost: float, seconds: float, step_seconds: float) -> int:
    """Steps from one snapshot to the next, each of which costs `cost` seconds and is whole after `seconds`."""
    if step_seconds <= 0:
        return 1
    return max(1, math.ceil(cost / (_SHARE * step_seconds)), math.ceil(_PAUSE * seconds / step_seconds))
