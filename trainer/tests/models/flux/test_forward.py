"""Our forward pass of FLUX.1 computes what diffusers' does, forward and backward."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from oarlock_api.objective import Loss
from oarlock_api.weights import Lora
from oarlock_trainer.ranks import preload

preload.settle_environment()
import torch  # noqa: E402 - reads the environment that was just settled
from flux_pair import CHANNELS, POOLED, TEXT_WIDTH, batch, distance, pair, passes, worst  # noqa: E402

from oarlock_api.engine import Attention  # noqa: E402
from oarlock_trainer.models.adapters import lora  # noqa: E402
from oarlock_trainer.models.compute.attention import attend_with  # noqa: E402
from oarlock_trainer.models.flux import forward  # noqa: E402
from oarlock_trainer.models.flux.blocks import linear_of_two  # noqa: E402
from oarlock_trainer.models.flux.family import FLUX1  # noqa: E402
from oarlock_trainer.models.flux.rotary import RotaryTables  # noqa: E402
from oarlock_trainer.models.flux.velocity import image_ids, velocity  # noqa: E402
from oarlock_trainer.models.objective.loss import MicroBatch, flow_matching_loss  # noqa: E402

if TYPE_CHECKING:
    from torch import Tensor

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


def test_what_this_forward_pass_does_not_know_is_refused() -> None:
    _, mine = pair()
    with pytest.raises(ValueError, match="ip_adapter_image_embeds"):
        ours(mine)(**batch() | {"joint_attention_kwargs": {"ip_adapter_image_embeds": None}})


def test_a_rotary_table_is_computed_once_for_the_same_ids_and_dropped_with_them() -> None:
    theirs, _ = pair()
    computed: list[Tensor] = []
    theirs.pos_embed.register_forward_pre_hook(lambda _module, given: computed.append(given[0]))
    tables = RotaryTables(theirs.pos_embed)
    wide, high, other = (image_ids(*size, torch.device("cpu")).clone() for size in ((4, 8), (8, 4), (4, 4)))
    text = torch.zeros(9, 3)
    first = tables.of(text, wide)
    assert tables.of(text, wide) is first
    assert not torch.equal(tables.of(text, high), first)
    assert len(computed) == 2
    del wide, high
    tables.of(text, other)
    assert len(tables._kept) == 1


def test_training_steps_of_one_shape_share_a_rotary_table() -> None:
    _, mine = pair()
    given = MicroBatch(
        latents=torch.randn(1, CHANNELS // 4, 8, 12), noise=torch.randn(1, CHANNELS // 4, 8, 12),
        text=torch.randn(1, 9, TEXT_WIDTH), pooled=torch.randn(1, POOLED), sigmas=torch.tensor([0.5]),
        guidance=torch.tensor([1.0]), text_mask=None,
    )  # fmt: skip
    computed: list[Tensor] = []
    mine.pos_embed.register_forward_pre_hook(lambda _module, given: computed.append(given[0]))
    ours(mine)
    for _ in range(2):
        flow_matching_loss(mine, given, velocity=velocity, has_guidance=True, measure=Loss.MSE)
    assert len(computed) == 1


def test_the_linear_layer_of_two_parts_needs_no_gradient_that_nobody_wants() -> None:
    layer = torch.nn.Linear(10, 4).requires_grad_(requires_grad=False)
    first, second = torch.randn(2, 3, 4, requires_grad=True), torch.randn(2, 3, 6)
    result = linear_of_two(layer, first, second)
    assert torch.allclose(result, layer(torch.cat([first, second], dim=-1)), atol=1e-6)
    result.sum().backward()
    assert torch.allclose(first.grad, layer.weight[:, :4].sum(0).expand_as(first), atol=1e-6)
    assert layer.weight.grad is None


def test_a_weight_that_is_elsewhere_is_left_to_its_layer() -> None:
    """ZeRO-3 brings a weight when its layer is called; what it is at other times has no elements."""
    layer = torch.nn.Linear(10, 4)
    whole, layer.weight.data = layer.weight.data, torch.empty(0)
    layer.weight.ds_id = 0
    layer.register_forward_pre_hook(lambda module, _given: setattr(module.weight, "data", whole))
    assert linear_of_two(layer, torch.randn(2, 3, 4), torch.randn(2, 3, 6)).shape == (2, 3, 4)
