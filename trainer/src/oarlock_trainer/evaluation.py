"""The loss on pictures that are never trained on: datasets with role Evaluation, after each checkpoint."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import torch

from oarlock_api.dataset import Role
from oarlock_trainer import channel
from oarlock_trainer.beat import Beat, told
from oarlock_trainer.models.flux.loss import flow_matching_loss

if TYPE_CHECKING:
    from oarlock_trainer.session import Session


@torch.no_grad()
def evaluate(session: Session) -> dict[str, float]:
    """Mean loss of each dataset with role Evaluation, over all ranks; nothing where there is none. Collective.

    Every picture counts once, with the same noise each time, and without caption dropout.
    """
    datasets = session.job.training.data.datasets
    places = [place for place, dataset in enumerate(datasets) if dataset.role is Role.EVALUATION]
    if not places:
        return {}
    losses: defaultdict[int, float] = defaultdict(float)
    counts: defaultdict[int, int] = defaultdict(int)
    model = session.engine.weights
    model.eval()
    for dataset, batch in told(session.loader.evaluation(), Beat()):
        loss = flow_matching_loss(
            model,
            batch.to(session.ranks.device),
            has_guidance=session.shape.has_guidance,
            measure=session.job.training.objective.loss,
        )
        losses[dataset] += float(loss) * len(batch.sigmas)
        counts[dataset] += len(batch.sigmas)
    model.train()
    channel.send(channel.Event.WAITING)  # for ranks whose share takes longer
    sums = session.ranks.sum([value for place in places for value in (losses[place], counts[place])])
    channel.send(channel.Event.WORKING)
    return {
        datasets[place].name: total / count
        for place, total, count in zip(places, sums[::2], sums[1::2], strict=True)
        if count
    }
