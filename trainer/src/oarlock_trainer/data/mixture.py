"""Datasets that are drawn from by probability, beside those that are drawn from by size.

Datasets without a probability form one group, whose epochs cover them evenly (data.sampler). Each one with a probability
is a group of its own and gets that share of the steps: exactly, up to one step in every block of BLOCK, with the turns
shuffled within the block. So how often each group was drawn before any step is a sum, not a walk.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from oarlock_trainer.data.sampler import Order, Origin, StepDraw
from oarlock_trainer.runtime.draws import Purpose, generator

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oarlock_trainer.data.sampler import Stream

BLOCK = 1024
_SCALE = 1 << 40
"""Shares are counted in whole parts of this, so that their sums are exact however far a run goes."""


@dataclass(frozen=True, slots=True)
class Group:
    """Streams that are drawn from together: their indices among all streams, and their share of the steps."""

    streams: tuple[int, ...]
    share: float


class Mixture:
    """The order of steps over groups; shares of all groups sum up to 1."""

    def __init__(
        self, streams: Sequence[Stream], groups: Sequence[Group], *, seed: int, effective: int, origin: Origin
    ) -> None:
        """`origin` is where this cut begins, told for all streams, those of no group too."""
        self._groups = tuple(groups)
        self._seed = seed
        self._origin = origin
        self._consumed = origin.consumed or (0,) * len(streams)
        self._epochs = origin.epochs or (0,) * len(streams)
        self._orders = [
            Order(
                [streams[index] for index in group.streams],
                seed=seed,
                effective=effective,
                origin=Origin(
                    0,
                    tuple(self._consumed[index] for index in group.streams),
                    tuple(self._epochs[index] for index in group.streams),
                ),
                names=group.streams,
            )
            for group in groups
        ]
        ends = np.cumsum([group.share for group in groups])
        self._ends = [0, *(round(float(end / ends[-1]) * _SCALE) for end in ends)]
        self._block: tuple[int, np.ndarray] | None = None

    def at(self, step: int) -> StepDraw:
        """What step `step` of the run takes; `bucket` counts among all streams."""
        turns, block, place = self._before(step)
        chosen = int(self._turns_in(block)[place])
        drawn = self._orders[chosen].at(turns[chosen])
        return StepDraw(drawn.epoch, self._groups[chosen].streams[drawn.bucket], drawn.pictures)

    def reached(self, step: int) -> Origin:
        """Where the steps before `step` leave all streams."""
        turns, _, _ = self._before(step)
        consumed, epochs = list(self._consumed), list(self._epochs)
        for group, order, turn in zip(self._groups, self._orders, turns, strict=True):
            for index, entries, epoch in zip(group.streams, order.consumed(turn), order.epochs(turn), strict=True):
                consumed[index], epochs[index] = entries, epoch
        return Origin(step, tuple(consumed), tuple(epochs))

    def steps_in(self, epochs: int) -> int:
        """Steps of the run at whose end the first group has been covered so often."""
        wanted = self._orders[0].steps_in(epochs)
        low, high = self._origin.step - 1, self._origin.step + 1
        while self._before(high)[0][0] < wanted:
            high += high - low
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._before(middle)[0][0] < wanted else (low, middle)
        return high

    def _before(self, step: int) -> tuple[list[int], int, int]:
        """(each group's turns before a step, the step's block, its place there)."""
        block, place = divmod(max(step - self._origin.step, 0), BLOCK)
        turns = [self._until(number, block) for number in range(len(self._groups))]
        if place:
            now = np.bincount(self._turns_in(block)[:place], minlength=len(turns))
            turns = [before + int(more) for before, more in zip(turns, now, strict=True)]
        return turns, block, place

    def _until(self, group: int, block: int) -> int:
        """Turns of a group in all blocks before one. Over the groups they add up, since each ends where the next begins."""
        steps = block * BLOCK
        return (steps * self._ends[group + 1]) // _SCALE - (steps * self._ends[group]) // _SCALE

    def _turns_in(self, block: int) -> np.ndarray:
        """(BLOCK,) which group has each step of a block."""
        if self._block is None or self._block[0] != block:
            counts = [
                self._until(number, block + 1) - self._until(number, block) for number in range(len(self._groups))
            ]
            turns = np.repeat(np.arange(len(counts), dtype=np.uint16), counts)
            generator(self._seed, Purpose.MIXTURE, self._origin.step, block).shuffle(turns)
            self._block = (block, turns)
        return self._block[1]
