"""The loss on pictures that are never trained on: datasets with role Evaluation, after each checkpoint."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import torch

from oarlock_api.dataset import Role
from oarlock_trainer.engine.sharded import is_sharded
from oarlock_trainer.models.family_codes import code_of
from oarlock_trainer.models.objective.loss import flow_matching_loss
from oarlock_trainer.runtime import channel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from torch import nn

    from oarlock_trainer.data.batches import Loader
    from oarlock_trainer.engine.process_group import RankGroup
    from oarlock_trainer.models.objective.loss import MicroBatch
    from oarlock_trainer.runtime.job import Job


@torch.no_grad()
def evaluate(
    judged: AbstractContextManager[nn.Module],
    loader: Loader,
    job: Job,
    ranks: RankGroup,
    *,
    has_guidance: bool,
    leaving: Callable[[], bool],
    spare: MicroBatch | None = None,
) -> dict[str, float]:
    """Mean loss of each dataset with role Evaluation, over all ranks; nothing where there is none. Collective.

    `judged` gives the model, and is entered only where there is such a dataset. `leaving` says whether this rank was asked
    to leave: all then stop at their next batch, and no loss is told.

    Every picture counts once, with the same noise each time, and without caption dropout. With sharded weights `spare`,
    of any data, is computed and not counted where the others have more and cannot go on alone.
    """
    datasets = job.training.data.datasets
    places = [place for place, dataset in enumerate(datasets) if dataset.role is Role.EVALUATION]
    if not places:
        return {}
    losses: defaultdict[int, float] = defaultdict(float)
    counts: defaultdict[int, int] = defaultdict(int)
    with judged as model:
        trains = model.training
        model.eval()
        sharded = is_sharded(next(model.parameters()))
        for own in _in_step(ranks, loader.evaluation(), leaving):
            dataset, batch = own or (None, spare if sharded else None)
            if batch is None:
                continue
            loss = flow_matching_loss(
                model,
                batch.to(ranks.device),
                velocity=code_of(job.training.model).velocity,
                has_guidance=has_guidance,
                measure=job.training.objective.loss,
            )
            if dataset is not None:
                losses[dataset] += float(loss) * len(batch.sigmas)
                counts[dataset] += len(batch.sigmas)
        model.train(trains)
    left, *sums = ranks.sum(
        [float(leaving()), *(value for place in places for value in (losses[place], counts[place]))]
    )
    return {
        datasets[place].name: total / count
        for place, total, count in zip(places, sums[::2], sums[1::2], strict=True)
        if count and not left
    }


def _in_step(
    ranks: RankGroup, batches: Iterator[tuple[int, MicroBatch]], leaving: Callable[[], bool]
) -> Iterator[tuple[int, MicroBatch] | None]:
    """This rank's batches, one with each of the others', and None while only others have more; the end where one leaves."""
    while True:
        own = next(batches, None)
        with channel.waiting():  # for ranks whose batch takes longer
            more, left = ranks.sum([float(own is not None), float(leaving())])
        if left or not more:
            return
        yield own
