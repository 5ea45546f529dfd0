"""Each family's loss is flow matching on what diffusers' pipeline asks its transformer, with the gradients of that."""

from __future__ import annotations

import sys
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import pytest

from oarlock_api.objective import Loss
from oarlock_api.weights import Lora
from oarlock_trainer.ranks import preload

preload.settle_environment()
import family_pipelines  # noqa: E402, F401 - diffusers' pipelines, before anything of ours
import torch  # noqa: E402 - reads the environment that was just settled
from flux_pair import distance, worst  # noqa: E402
from forward_pairs import gradients  # noqa: E402

from oarlock_trainer.models import transformer  # noqa: E402
from oarlock_trainer.models.adapters import lora  # noqa: E402
from oarlock_trainer.models.objective import loss  # noqa: E402
from oarlock_trainer.models.warm_up import Shape, step_on_zeros  # noqa: E402

if TYPE_CHECKING:
    from pathlib import Path

    from tiny_pipelines import Tiny


def noisy(batch: loss.MicroBatch) -> torch.Tensor:
    sigmas = batch.sigmas.view(-1, 1, 1, 1)
    return (1.0 - sigmas) * batch.latents + sigmas * batch.noise


def test_the_loss_and_its_gradients_are_flow_matching_on_what_the_pipeline_predicts(tiny: Tiny) -> None:
    """noise - x0 is the target, x_t = (1 - sigma) x0 + sigma noise, mean squared error in float32."""
    model = tiny.pipeline.transformer
    for one in tiny.record.batches:
        batch = tiny.batch(**one)
        found = loss.flow_matching_loss(
            tiny.installed, batch, velocity=tiny.code.velocity, has_guidance=tiny.has_guidance, measure=Loss.MSE
        )
        predicted = tiny.record.predicted(tiny.pipeline, model, noisy(batch), batch)
        wanted = ((predicted - (batch.noise - batch.latents)) ** 2).mean()
        assert found.item() == pytest.approx(wanted.item(), rel=1e-5)
        assert worst(gradients(tiny.installed, found), gradients(model, wanted)) < 1e-5


def test_a_step_on_zeros_goes_back_through_every_block(tiny: Tiny) -> None:
    model: Any = tiny.ours(transformer.load(tiny.folder), recomputed=sys.maxsize)
    calls: list[int] = []
    blocks = tiny.family.blocks_of(model)
    for number, block in enumerate(blocks):
        block.register_forward_pre_hook(lambda *_, number=number: calls.append(number))
    for height, width in tiny.record.zeros:
        calls.clear()
        step_on_zeros(model, Shape(height, width, 32), model=tiny.model, batch_size=2, masked=True)
        assert calls == [*range(len(blocks)), *reversed(range(len(blocks)))]
        assert all(one.grad is None for one in model.parameters())


def test_adapters_that_were_saved_are_loaded_by_the_pipeline(tiny: Tiny, tmp_path: Path) -> None:
    settings, parts = Lora(rank=4, alpha=8), tiny.pipeline.components
    trained = deepcopy(tiny.pipeline.transformer)
    lora.add_adapters(trained, settings, tiny.family.presets, seed=0)
    torch.manual_seed(3)
    for name, parameter in trained.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.2)
    lora.save({name: value for name, value in trained.named_parameters() if value.requires_grad}, settings, tmp_path)
    theirs = type(tiny.pipeline)(**parts | {"transformer": deepcopy(tiny.pipeline.transformer)})
    theirs.load_lora_weights(tmp_path)
    batch = tiny.batch()
    with torch.no_grad():
        base, loaded, wanted = (
            tiny.record.predicted(tiny.pipeline, model, noisy(batch), batch)
            for model in (tiny.pipeline.transformer, theirs.transformer, trained)
        )
    assert torch.equal(loaded, wanted)
    assert distance(loaded, base) > 0.01
