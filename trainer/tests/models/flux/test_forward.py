"""FLUX.1 with the job's kernel of attention computes what diffusers' does, forward and backward."""

from __future__ import annotations

from typing import Any

import pytest

from oarlock_api.weights import Lora
from oarlock_trainer.ranks import preload

preload.settle_environment()
import torch  # noqa: E402 - reads the environment that was just settled
from flux_pair import batch, distance, pair, passes, worst  # noqa: E402

from oarlock_api.engine import Attention  # noqa: E402
from oarlock_trainer.models.adapters import lora  # noqa: E402
from oarlock_trainer.models.compute.attention import attend_with  # noqa: E402
from oarlock_trainer.models.flux import forward  # noqa: E402
from oarlock_trainer.models.flux.family import FLUX1  # noqa: E402

ATTEND = attend_with(Attention.SDPA)
ROUNDED = {"hidden_states", "encoder_hidden_states", "pooled_projections", "timestep", "guidance"}
"""Inputs that have the weights' type."""
BFLOAT16 = 0.02
"""Relative distance of a prediction in bfloat16 from that in float32, weights and inputs being the same."""
FLOAT32 = 1e-5
"""Relative distance in float32: of the prediction, and of each parameter's gradient."""


def ours(model: Any, *, recomputed: int = 0) -> Any:
    forward.install(model, attend=ATTEND, recomputed=recomputed)
    return model


@pytest.mark.parametrize("masked", [False, True], ids=["", "masked"])
@pytest.mark.parametrize("guidance", [True, False], ids=["guided", "unguided"])
@pytest.mark.parametrize(("size", "height", "width"), [(1, 8, 8), (3, 8, 12), (3, 12, 4)])
def test_prediction_and_gradients_are_those_of_diffusers_in_float32(
    *, size: int, height: int, width: int, guidance: bool, masked: bool
) -> None:
    theirs, mine = pair(guidance=guidance)
    given = batch(size=size, height=height, width=width, guidance=guidance, masked=masked)
    wanted, wanted_gradients = passes(theirs, given)
    found, gradients = passes(ours(mine), given)
    assert distance(found, wanted) < FLOAT32
    assert worst(gradients, wanted_gradients) < FLOAT32


def test_in_bfloat16_it_is_as_near_to_float32_as_diffusers_is() -> None:
    theirs, mine = (torch.nn.Module.to(model, torch.bfloat16) for model in pair())
    given = {name: value.bfloat16() if name in ROUNDED else value for name, value in batch(size=2).items()}
    wanted, wanted_gradients = passes(theirs, given)
    found, gradients = passes(ours(mine), given)
    exact, exact_gradients = passes(
        torch.nn.Module.to(theirs, torch.float32),
        {name: value.float() if name in ROUNDED else value for name, value in given.items()},
    )
    assert found.dtype == torch.bfloat16
    assert distance(found, exact) < min(BFLOAT16, 1.2 * distance(wanted, exact))
    assert worst(gradients, exact_gradients) < 1.2 * worst(wanted_gradients, exact_gradients)


@pytest.mark.parametrize("recomputed", [0, 1, 3, 5])
def test_as_many_blocks_as_asked_for_are_computed_twice_and_change_nothing(recomputed: int) -> None:
    theirs, mine = pair()
    given = batch(size=2)
    calls: list[int] = []
    for number, block in enumerate(FLUX1.blocks_of(mine)):
        block.register_forward_pre_hook(lambda *_, number=number: calls.append(number))
    wanted, wanted_gradients = passes(theirs, given)
    found, gradients = passes(ours(mine, recomputed=recomputed), given)
    assert distance(found, wanted) < FLOAT32
    assert worst(gradients, wanted_gradients) < FLOAT32
    assert calls == [*range(5), *reversed(range(recomputed))]


def test_without_gradients_nothing_is_recomputed() -> None:
    _, mine = pair()
    ours(mine, recomputed=5)
    with torch.no_grad():
        assert mine(**batch())[0].grad_fn is None


@pytest.mark.parametrize("recomputed", [0, 5])
def test_adapters_of_lora_train_as_in_diffusers_forward(recomputed: int) -> None:
    theirs, mine = pair()
    given = batch(size=2)
    for model in (theirs, mine):
        lora.add_adapters(model, Lora(rank=4, alpha=4, targets=("ai-toolkit",)), FLUX1.presets, seed=1)
        torch.manual_seed(2)
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(parameter, std=0.1)
    wanted, wanted_gradients = passes(theirs, given)
    found, gradients = passes(ours(mine, recomputed=recomputed), given)
    assert any("proj_out.lora_A" in name for name in gradients)
    assert distance(found, wanted) < FLOAT32
    assert worst(gradients, wanted_gradients) < FLOAT32


def test_names_and_class_stay_those_of_diffusers() -> None:
    theirs, mine = pair()
    ours(mine)
    assert list(mine.state_dict()) == list(theirs.state_dict())
    assert type(mine) is type(theirs)


def test_a_model_output_is_returned_where_a_pipeline_asks_for_it() -> None:
    theirs, mine = pair()
    given = batch() | {"return_dict": True}
    assert distance(ours(mine)(**given).sample, theirs(**given).sample) < FLOAT32
