"""How the micro-batches of an optimizer step are dealt to the ranks, so that any number of them computes the same step.

Micro-batch m goes to rank m % ranks. Where the shares are unequal, a rank with one fewer computes its last one once more with
weight 0, while the others compute theirs: sharded engines exchange in every pass, so all ranks must make as many
(decision 0065). Engines take the mean over all passes of all ranks; `weight` makes it the mean over the micro-batches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from oarlock_api.training import Task
from oarlock_trainer.runtime.errors import ConfigurationError

if TYPE_CHECKING:
    from oarlock_api.training import Training


@dataclass(frozen=True, slots=True)
class Dealing:
    """`micro_batches` of one step over `ranks`, of which each has at least one."""

    micro_batches: int
    ranks: int

    @property
    def passes(self) -> int:
        """Forward and backward passes of each rank in one step: its gradient accumulation."""
        return -(-self.micro_batches // self.ranks)

    @property
    def weight(self) -> float:
        """Of a micro-batch's loss in the mean over all passes; exactly 1 where the shares are equal."""
        return self.passes * self.ranks / self.micro_batches

    def share(self, rank: int) -> range:
        """Numbers of a rank's micro-batches among those of the step."""
        return range(rank, self.micro_batches, self.ranks)


def dealing_of(training: Training, ranks: int) -> Dealing:
    """How a step of the job is dealt to so many ranks.

    Raises ConfigurationError where some would get nothing, with the nearest sizes that can be dealt.
    """
    if training.effective_batch is None:
        return Dealing(training.gradient_accumulation * ranks, ranks)
    micro_batches = training.effective_batch // training.batch_size
    if micro_batches < ranks and training.task is Task.TRAIN:
        raise ConfigurationError(
            f"training.effectiveBatch {training.effective_batch} is {micro_batches} micro-batch"
            f"{'es' if micro_batches > 1 else ''} of {training.batch_size}, too few for {ranks} GPUs: "
            f"{', or '.join(_nearest(training.effective_batch, training.batch_size, ranks))}"
        )
    return Dealing(micro_batches, ranks)


def _nearest(effective: int, size: int, ranks: int) -> list[str]:
    """What makes enough micro-batches of a step, or GPUs few enough for them."""
    found = [f"take at most {effective // size} of them"]
    smaller = next((one for one in range(size - 1, 0, -1) if effective % one == 0 and effective // one >= ranks), None)
    if smaller:
        found.append(f"set batchSize to {smaller}")
    return [*found, f"set effectiveBatch to {size * ranks}"]
