"""A rank that is slower than the others, for long: found by each rank's own time in the forward pass.

Forward passes wait for no other rank (but with ZeRO stage 3, where all take as long as the slowest, and nobody is found), and
data, evaluation, pictures and checkpoints are no part of them. The times come to all with the exchange of every step.

A rank is slow when its median over the last WINDOW steps is SLOW times the median of the others or more, and most of those
steps were; it is so until that falls below FAST. A step that stalls once moves no median. A step for whose data a rank had to
wait tells nothing of it: what prepares data takes processors from it. Pure.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

WINDOW = 50
LEAST = 30
"""Steps of a rank, within the window, that must tell something."""
SLOW, FAST = 1.10, 1.05
_MOST = 0.8
"""The share of those steps in which a slow rank is slower than FAST."""
EVERY = 10
"""Steps between judgements: a median of a thousand ranks takes half a millisecond."""
STALLED = 0.1
"""The share of a step spent waiting for data from which on it tells nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowRank:
    """The slowest rank. `lag`: how much longer than the others' median its forward passes take, 0.15 = 15 %."""

    rank: int
    lag: float
    steps: int


class SlowRanks:
    """Watches the ranks of a gang, step by step."""

    def __init__(self) -> None:
        self._ratios: deque[np.ndarray] = deque(maxlen=WINDOW)
        self._since = 0
        self.lag: float | None = None
        """Of the slowest rank, slow or not; None until LEAST steps are known."""
        self.slow: SlowRank | None = None
        """The rank that is slow."""

    def take(self, seconds: Sequence[float]) -> bool:
        """A step's seconds of every rank, 0 for one that tells nothing; whether `slow` has changed."""
        self._ratios.append(_ratios(np.asarray(seconds, dtype=np.float64)))
        self._since += 1
        if self._since < EVERY:
            return False
        self._since = 0
        before, self.slow = self.slow, self._judged()
        return (before is None) != (self.slow is None) or bool(before and self.slow and before.rank != self.slow.rank)

    def _judged(self) -> SlowRank | None:
        ratios = np.stack(self._ratios)
        told = np.count_nonzero(~np.isnan(ratios), axis=0)
        known = told >= LEAST
        if not known.any():
            return self.slow
        medians = np.full(len(known), -np.inf)
        medians[known] = np.nanmedian(ratios[:, known], axis=0)
        rank = int(medians.argmax())
        self.lag = float(medians[rank]) - 1.0
        known_slow = self.slow is not None and self.slow.rank == rank
        often = np.count_nonzero(ratios[:, rank] > FAST) >= _MOST * told[rank]
        slow = medians[rank] >= FAST if known_slow else medians[rank] >= SLOW and often
        return SlowRank(rank=rank, lag=self.lag, steps=int(told[rank])) if slow else None


def _ratios(seconds: np.ndarray) -> np.ndarray:
    """Each rank's seconds over the median of the others' that tell something; NaN where either is missing."""
    told = seconds > 0
    result = np.full(len(seconds), np.nan)
    count = int(told.sum())
    if count < 2:
        return result
    ordered = np.sort(seconds[told])
    # Without one rank the median moves by a place: of the sorted rest it is found, not sorted anew for each.
    place = np.searchsorted(ordered, seconds[told])
    low, high = (count - 2) // 2, (count - 1) // 2
    others = (ordered[low + (place <= low)] + ordered[high + (place <= high)]) / 2
    result[told] = seconds[told] / others
    return result
