"""With a second picture each family's prediction, loss and gradients are those of what diffusers' pipeline asks."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from oarlock_api.objective import Loss
from oarlock_trainer.ranks import preload

preload.settle_environment()
import torch  # noqa: E402 - reads the environment that was just settled
from flux_pair import distance, worst  # noqa: E402
from forward_pairs import gradients  # noqa: E402
from reference_pairs import REFERENCES, Referenced  # noqa: E402 - diffusers' pipelines, before anything of ours

from oarlock_trainer.models.objective.loss import MicroBatch, flow_matching_loss, predict  # noqa: E402

if TYPE_CHECKING:
    from torch import Tensor

FLOAT32 = 1e-5
"""Relative distance in float32: of the prediction, and of each parameter's gradient."""


def predicted(one: Referenced, model: Any, batch: MicroBatch) -> Tensor:
    has_guidance = one.pair.family.architecture(model.config).has_guidance
    return predict(model, batch, velocity=one.velocity, has_guidance=has_guidance)


@pytest.mark.parametrize(
    ("one", "size", "masked"),
    [
        pytest.param(one, size, masked, id=f"{one.name}{' smaller' * (size == one.smaller)}{' masked' * masked}")
        for one in REFERENCES
        for size in (one.latents, one.smaller)
        for masked in (False, True)
        if size and (one.is_masked or not masked)
    ],
)
@pytest.mark.parametrize("recomputed", ["none", "all"])
def test_prediction_loss_and_gradients_are_those_of_diffusers(
    one: Referenced, size: tuple[int, int], recomputed: str, *, masked: bool
) -> None:
    theirs, mine = one.make()
    one.pair.ours(mine, recomputed=one.pair.blocks * (recomputed == "all"))
    batch = one.batch(size, masked=masked)
    sigmas = batch.sigmas.view(-1, 1, 1, 1)
    wanted = one.theirs(theirs, (1 - sigmas) * batch.latents + sigmas * batch.noise, batch)
    found = predicted(one, mine, batch)
    assert found.shape == batch.noise.shape
    assert distance(found, wanted) < FLOAT32
    has_guidance = one.pair.family.architecture(mine.config).has_guidance
    loss = flow_matching_loss(mine, batch, velocity=one.velocity, has_guidance=has_guidance, measure=Loss.MSE)
    wanted_loss = (wanted - (batch.noise - batch.latents)).square().mean()
    assert loss.item() == pytest.approx(wanted_loss.item(), rel=FLOAT32)
    assert worst(gradients(mine, loss), gradients(theirs, wanted_loss)) < FLOAT32


@pytest.mark.parametrize("one", REFERENCES, ids=lambda one: one.name)
def test_each_samples_reference_changes_what_is_predicted_of_it(one: Referenced) -> None:
    mine = one.pair.ours(one.make()[1])
    batch = one.batch(one.latents, masked=False)
    with torch.no_grad():
        found = predicted(one, mine, batch)
        others = [replace(batch, reference=batch.reference.flip(0))]
        if one.smaller:
            others.append(replace(batch, reference=None))
        for other in others:
            now = predicted(one, mine, other)
            assert all(distance(its, was) > one.moves for its, was in zip(now, found, strict=True))
