"""How long each rank's forward passes take, brought together with the exchange of every step; a slow rank is told.

Each rank adds its seconds in a place of its own, so the sum has them all: no exchange more, and eight bytes for each rank.
They are those of the step before, by the device's clock: nothing waits for a GPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oarlock_api.contract.status import Degradation, StepPart, pod_of_gang
from oarlock_trainer.loop.slow_rank import STALLED, SlowRanks
from oarlock_trainer.runtime import channel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oarlock_trainer.loop.slow_rank import SlowRank
    from oarlock_trainer.loop.step_clock import Split
    from oarlock_trainer.runtime.job import RankInfo


class RankPace:
    """Of one rank; rank 0 watches. A rank that is alone tells and hears nothing."""

    def __init__(self, rank_info: RankInfo) -> None:
        self._rank_info = rank_info
        self._watch = SlowRanks() if rank_info.is_leader and rank_info.world_size > 1 else None
        self._own = 0.0

    @property
    def lag(self) -> float | None:
        """How much longer the slowest rank's forward passes take than the others', as SlowRanks has it; rank 0 knows."""
        return self._watch.lag if self._watch else None

    def told(self) -> list[float]:
        """What this rank adds to the exchange: a number for each rank, all but its own 0."""
        own, ranks = self._rank_info.rank, self._rank_info.world_size
        return [self._own if rank == own else 0.0 for rank in range(ranks)] if ranks > 1 else []

    def take(self, seconds: Sequence[float], split: Split) -> Split:
        """Take the exchange's sums, and the step that has ended, whose time is told with the next one; returns the step."""
        if self._watch and self._watch.take(seconds):
            self._tell(self._watch.slow)
        stalled = (split.share(StepPart.DATA) or 0.0) > STALLED
        self._own = 0.0 if stalled else split.parts[StepPart.FORWARD]
        return split

    def _tell(self, slow: SlowRank | None) -> None:
        if slow is None:
            channel.send(channel.Event.DEGRADED, reason=Degradation.SLOW_RANK, message="")
            return
        pod = self._rank_info.pod_of(slow.rank)
        words = (
            f"rank {slow.rank}, in {pod_of_gang(pod)}, takes {slow.lag:.0%} longer for its forward passes than the median of "
            f"the others, over {slow.steps} steps in which it did not wait for data: all wait for it"
        )
        channel.send(channel.Event.DEGRADED, reason=Degradation.SLOW_RANK, message=words, slowRank=slow.rank, pod=pod)
