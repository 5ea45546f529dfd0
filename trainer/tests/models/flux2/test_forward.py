"""What is installed in a FLUX.2 transformer computes what diffusers' own does, forward and backward."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from oarlock_api.weights import Lora
from oarlock_trainer.ranks import preload

preload.settle_environment()
import torch  # noqa: E402 - reads the environment that was just settled
from flux2_pair import CHANNELS, TEXT, TEXT_WIDTH, ours, pair  # noqa: E402
from flux_pair import distance, passes, worst  # noqa: E402

from oarlock_trainer.models.adapters import lora  # noqa: E402
from oarlock_trainer.models.compute.compiled import _WithGradients  # noqa: E402
from oarlock_trainer.models.flux2.family import FLUX2  # noqa: E402
from oarlock_trainer.models.flux2.velocity import image_ids, text_ids  # noqa: E402

if TYPE_CHECKING:
    from torch import Tensor

FLOAT32 = 1e-5
"""Relative distance in float32: of the prediction, and of each parameter's gradient."""
CPU = torch.device("cpu")


def batch(
    *, size: int = 1, height: int = 4, width: int = 6, guidance: bool = False, masked: bool = False
) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(1)
    tokens = height * width

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator)

    mask = torch.ones(size, 1, 1, TEXT + tokens, dtype=torch.bool)
    mask[..., TEXT - 3 : TEXT] = False
    return {
        "hidden_states": random(size, tokens, CHANNELS),
        "encoder_hidden_states": random(size, TEXT, TEXT_WIDTH),
        "timestep": torch.linspace(0.25, 0.5, size),
        "guidance": torch.full((size,), 4.0) if guidance else None,
        "img_ids": image_ids(height, width, CPU),
        "txt_ids": text_ids(TEXT, CPU),
        "joint_attention_kwargs": {"attention_mask": mask} if masked else None,
        "return_dict": False,
    }


@pytest.mark.parametrize("masked", [False, True], ids=["", "masked"])
@pytest.mark.parametrize("guidance", [True, False], ids=["guided", "unguided"])
@pytest.mark.parametrize(("size", "height", "width"), [(1, 4, 4), (3, 6, 2)])
def test_prediction_and_gradients_are_those_of_diffusers_in_float32(
    *, size: int, height: int, width: int, guidance: bool, masked: bool
) -> None:
    theirs, mine = pair(guidance=guidance)
    given = batch(size=size, height=height, width=width, guidance=guidance, masked=masked)
    wanted, wanted_gradients = passes(theirs, given)
    found, gradients = passes(ours(mine), given)
    assert distance(found, wanted) < FLOAT32
    assert worst(gradients, wanted_gradients) < FLOAT32


@pytest.mark.parametrize("recomputed", [0, 1, 3, 5])
def test_as_many_blocks_as_asked_for_are_computed_twice_and_change_nothing(recomputed: int) -> None:
    theirs, mine = pair()
    given = batch(size=2)
    calls: list[int] = []
    for number, block in enumerate(FLUX2.blocks_of(mine)):
        block.register_forward_pre_hook(lambda *_, number=number: calls.append(number))
    wanted, wanted_gradients = passes(theirs, given)
    found, gradients = passes(ours(mine, recomputed=recomputed), given)
    assert distance(found, wanted) < FLOAT32
    assert worst(gradients, wanted_gradients) < FLOAT32
    assert calls == [*range(5), *reversed(range(recomputed))]
    mine.forward.recomputed = 5
    with torch.no_grad():
        assert mine(**given)[0].grad_fn is None


@pytest.mark.parametrize("recomputed", [0, 5])
def test_adapters_of_lora_train_as_in_diffusers_forward(recomputed: int) -> None:
    theirs, mine = pair()
    given = batch(size=2)
    for model in (theirs, mine):
        lora.add_adapters(model, Lora(rank=4, alpha=4), FLUX2.presets, seed=1)
        torch.manual_seed(2)
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(parameter, std=0.1)
    wanted, wanted_gradients = passes(theirs, given)
    found, gradients = passes(ours(mine, recomputed=recomputed), given)
    assert any("to_qkv_mlp_proj.lora_A" in name for name in gradients)
    assert distance(found, wanted) < FLOAT32
    assert worst(gradients, wanted_gradients) < FLOAT32


def test_compiled_blocks_are_called_as_diffusers_calls_them_with_gradients_and_without() -> None:
    theirs, mine = pair()
    given = batch(size=2, masked=True)
    for block in FLUX2.blocks_of(ours(mine)):
        vars(block)["forward"] = _WithGradients(eager=block.forward, compiled=block.forward)
    found, _ = passes(mine, given)
    assert distance(found, theirs(**given)[0]) < FLOAT32
    with torch.no_grad():
        assert distance(mine(**given)[0], theirs(**given)[0]) < FLOAT32


def test_names_and_class_stay_those_of_diffusers() -> None:
    theirs, mine = pair()
    ours(mine)
    assert list(mine.state_dict()) == list(theirs.state_dict())
    assert type(mine) is type(theirs)
