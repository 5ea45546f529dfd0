"""Our forward pass of Stable Diffusion 3.5 computes what diffusers' does, forward and backward, in both variants."""

from __future__ import annotations

from typing import Any

import pytest

from oarlock_api.weights import Lora
from oarlock_trainer.ranks import preload

preload.settle_environment()
import torch  # noqa: E402 - reads the environment that was just settled
from flux_pair import distance, passes, worst  # noqa: E402
from sd3_pair import DUAL, batch, pair  # noqa: E402

from oarlock_api.engine import Attention  # noqa: E402
from oarlock_trainer.models.adapters import lora  # noqa: E402
from oarlock_trainer.models.compute.attention import attend_with  # noqa: E402
from oarlock_trainer.models.sd3 import forward  # noqa: E402
from oarlock_trainer.models.sd3.family import STABLE_DIFFUSION_3  # noqa: E402
from oarlock_trainer.models.sd3.velocity import velocity  # noqa: E402

FLOAT32 = 1e-5
"""Relative distance in float32: of the prediction, and of each parameter's gradient."""
LAYERS = 4


def ours(model: Any, *, recomputed: int = 0) -> Any:
    forward.install(model, attend=attend_with(Attention.SDPA), recomputed=recomputed)
    return model


@pytest.mark.parametrize(
    ("dual", "norms"), [((), True), (DUAL, True), ((), False)], ids=["large", "medium", "no norms"]
)
@pytest.mark.parametrize(("size", "height", "width"), [(1, 8, 8), (3, 12, 4)])
def test_prediction_and_gradients_are_those_of_diffusers_in_float32(
    *, size: int, height: int, width: int, dual: tuple[int, ...], norms: bool
) -> None:
    theirs, mine = pair(dual=dual, norms=norms)
    given = batch(size=size, height=height, width=width)
    wanted, wanted_gradients = passes(theirs, given)
    found, gradients = passes(ours(mine), given)
    assert found.shape == given["hidden_states"].shape
    assert distance(found, wanted) < FLOAT32
    # The last block's queries of the text reach nothing: these gradients are zeros.
    assert sum(not gradient.any() for gradient in gradients.values()) == (3 if norms else 2)
    assert worst(gradients, wanted_gradients) < FLOAT32


def test_in_bfloat16_it_is_as_near_to_float32_as_diffusers_is() -> None:
    theirs, mine = pair()
    given = {name: one.bfloat16().float() if torch.is_tensor(one) else one for name, one in batch(size=2).items()}
    rounded = {
        name: one.bfloat16() if torch.is_tensor(one) and name != "timestep" else one for name, one in given.items()
    }
    for model in (theirs, mine):
        torch.nn.Module.to(model, torch.bfloat16)
    wanted, wanted_gradients = passes(theirs, rounded)
    found, gradients = passes(ours(mine), rounded)
    exact, exact_gradients = passes(torch.nn.Module.to(theirs, torch.float32), given)
    assert found.dtype == torch.bfloat16
    assert distance(found, exact) < min(0.02, 1.2 * distance(wanted, exact))
    assert worst(gradients, exact_gradients) < 1.2 * worst(wanted_gradients, exact_gradients)


@pytest.mark.parametrize("recomputed", [0, 1, 3, 4])
def test_as_many_blocks_as_asked_for_are_computed_twice_and_change_nothing(recomputed: int) -> None:
    theirs, mine = pair()
    given = batch(size=2)
    calls: list[int] = []
    for number, block in enumerate(STABLE_DIFFUSION_3.blocks_of(mine)):
        block.register_forward_pre_hook(lambda *_, number=number: calls.append(number))
    wanted, wanted_gradients = passes(theirs, given)
    found, gradients = passes(ours(mine, recomputed=recomputed), given)
    assert distance(found, wanted) < FLOAT32
    assert worst(gradients, wanted_gradients) < FLOAT32
    assert calls == [*range(LAYERS), *reversed(range(recomputed))]


def test_a_masked_text_token_has_no_influence_and_the_others_are_seen_as_if_it_were_not_there() -> None:
    _, mine = pair()
    ours(mine)
    given = batch(size=2)
    noisy, text, pooled = given["hidden_states"], given["encoder_hidden_states"], given["pooled_projections"]
    mask = torch.ones(2, 9, dtype=torch.bool)
    mask[:, 7:] = False

    def predicted(text: torch.Tensor, text_mask: torch.Tensor | None) -> torch.Tensor:
        sigmas = torch.tensor([0.2, 0.9])
        return velocity(mine, noisy, sigmas, text=text, pooled=pooled, text_mask=text_mask, guidance=None)

    wanted = predicted(text[:, :7], None)
    changed = text.clone()
    changed[:, 7:] += 100.0
    assert distance(predicted(text, mask), wanted) < FLOAT32
    assert distance(predicted(changed, mask), wanted) < FLOAT32
    assert distance(predicted(changed, None), wanted) > 0.001


@pytest.mark.parametrize("recomputed", [0, LAYERS])
def test_adapters_of_lora_train_as_in_diffusers_forward(recomputed: int) -> None:
    theirs, mine = pair()
    given = batch(size=2)
    for model in (theirs, mine):
        lora.add_adapters(model, Lora(rank=4, alpha=4), STABLE_DIFFUSION_3.presets, seed=1)
        torch.manual_seed(2)
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(parameter, std=0.1)
    wanted, wanted_gradients = passes(theirs, given)
    found, gradients = passes(ours(mine, recomputed=recomputed), given)
    assert any("attn2.to_q.lora_A" in name for name in gradients)
    assert distance(found, wanted) < FLOAT32
    assert worst(gradients, wanted_gradients) < FLOAT32


def test_names_and_class_stay_those_of_diffusers_and_so_does_the_output_for_pipelines() -> None:
    theirs, mine = pair()
    ours(mine)
    given = batch() | {"return_dict": True}
    assert list(mine.state_dict()) == list(theirs.state_dict())
    assert type(mine) is type(theirs)
    assert distance(mine(**given).sample, theirs(**given).sample) < FLOAT32


def test_what_this_forward_pass_does_not_know_is_refused() -> None:
    _, mine = pair()
    with pytest.raises(ValueError, match="ip_adapter_image_embeds"):
        ours(mine)(**batch() | {"joint_attention_kwargs": {"ip_adapter_image_embeds": None}})
