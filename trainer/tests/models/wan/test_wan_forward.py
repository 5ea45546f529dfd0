"""What is installed in a Wan transformer computes what diffusers' own does, forward and backward."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from oarlock_api.weights import Lora
from oarlock_trainer.ranks import preload

preload.settle_environment()
import torch  # noqa: E402 - reads the environment that was just settled
from flux_pair import distance, worst  # noqa: E402
from wan_pair import CHANNELS, batch, pair  # noqa: E402

from oarlock_api.engine import Attention  # noqa: E402
from oarlock_trainer.models.adapters import lora  # noqa: E402
from oarlock_trainer.models.compute.attention import attend_with  # noqa: E402
from oarlock_trainer.models.compute.compiled import _WithGradients  # noqa: E402
from oarlock_trainer.models.wan import forward  # noqa: E402
from oarlock_trainer.models.wan.family import WAN  # noqa: E402
from oarlock_trainer.models.wan.latents import joined, parted  # noqa: E402
from oarlock_trainer.models.wan.positions import Positions  # noqa: E402
from oarlock_trainer.models.wan.velocity import velocity  # noqa: E402

if TYPE_CHECKING:
    from torch import Tensor

FLOAT32 = 1e-5
"""Relative distance in float32: of the prediction, and of each parameter's gradient."""
LAYERS = 3
SHAPES = [
    {"size": 1}, {"size": 3, "frames": 5}, {"size": 2, "frames": 2, "rows": 5, "columns": 3},
    {"size": 2, "frames": 3, "rows": 1, "columns": 8, "text": 2},
]  # fmt: skip
NAMES = ["a picture", "a video", "odd sides", "a strip and two words"]


def ours(model: Any, *, recomputed: int = 0) -> Any:
    forward.install(model, attend=attend_with(Attention.SDPA), recomputed=recomputed)
    return model


def passes(model: Any, given: dict[str, Any]) -> tuple[Tensor, dict[str, Tensor]]:
    """(prediction, gradient of each parameter that has one) of a squared error."""
    model.zero_grad(set_to_none=True)
    prediction = model(**given)[0]
    prediction.float().square().mean().backward()
    return prediction.detach(), {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def masked(given: dict[str, Any], *lengths: int) -> dict[str, Any]:
    """The same with texts of these lengths, behind which nothing is seen."""
    text = given["encoder_hidden_states"]
    seen = torch.tensor(lengths)[:, None] > torch.arange(text.shape[1])
    return given | {"encoder_hidden_states": (text, seen[:, None, None, :])}


@pytest.mark.parametrize("shape", SHAPES, ids=NAMES)
def test_prediction_and_gradients_are_those_of_diffusers_in_float32(shape: dict[str, int]) -> None:
    theirs, mine = pair()
    given = batch(**shape)
    wanted, wanted_gradients = passes(theirs, given)
    found, gradients = passes(ours(mine), given)
    assert distance(found, wanted) < FLOAT32
    assert gradients.keys() == dict(mine.named_parameters()).keys()
    assert worst(gradients, wanted_gradients) < FLOAT32


def test_what_is_masked_of_a_text_is_as_if_it_were_not_there() -> None:
    theirs, mine = pair()
    given = batch(size=2, frames=2)
    found, gradients = passes(ours(mine), masked(given, 9, 4))
    wanted, each = [], []
    for place, length in enumerate((9, 4)):
        alone = {
            name: one[place : place + 1, :length] if name == "encoder_hidden_states" else one[place : place + 1]
            for name, one in given.items()
            if name != "return_dict"
        }
        prediction, own = passes(theirs, alone | {"return_dict": False})
        wanted.append(prediction)
        each.append(own)
    assert distance(found, torch.cat(wanted)) < FLOAT32
    assert worst(gradients, {name: (each[0][name] + each[1][name]) / 2 for name in gradients}) < FLOAT32


def test_what_the_family_gives_the_model_is_a_video_and_a_thousand_times_the_noise_level() -> None:
    theirs, mine = pair()
    given = batch(size=2, frames=3)
    found = velocity(
        ours(mine), joined(given["hidden_states"]), given["timestep"] / 1000, text=given["encoder_hidden_states"],
        pooled=torch.zeros(2, 0), text_mask=None, guidance=None,
    )  # fmt: skip
    assert found.shape == (2, 3 * CHANNELS, 8, 12)
    assert distance(parted(found, CHANNELS), theirs(**given)[0]) < FLOAT32


def test_a_mask_of_all_changes_nothing_and_a_wrapped_model_is_given_the_same() -> None:
    _, mine = pair()
    given = batch(size=2, frames=3)

    class Wrapped(torch.nn.Module):
        """As engines wrap it, with a configuration of their own."""

        config = None

        def __init__(self) -> None:
            super().__init__()
            self.module = ours(mine)

        def forward(self, **arguments: Any) -> Any:
            return self.module(**arguments)

    arguments: dict[str, Any] = {
        "text": given["encoder_hidden_states"], "pooled": torch.zeros(2, 0), "guidance": None,
    }  # fmt: skip
    latents, sigmas = joined(given["hidden_states"]), given["timestep"] / 1000
    plain = velocity(Wrapped(), latents, sigmas, text_mask=None, **arguments)
    all_seen = velocity(mine, latents, sigmas, text_mask=torch.ones(2, 9, dtype=torch.bool), **arguments)
    assert distance(all_seen, plain) < FLOAT32


def test_the_bare_class_refuses_a_mask_of_ours() -> None:
    theirs, _ = pair()
    with pytest.raises((TypeError, AttributeError)):
        theirs(**masked(batch(size=2), 9, 4))


@pytest.mark.parametrize(("frames", "rows", "columns"), [(1, 4, 6), (5, 3, 20), (3, 1, 30)])
def test_positions_are_diffusers_own(frames: int, rows: int, columns: int) -> None:
    theirs, _ = pair()
    latents = torch.zeros(1, CHANNELS, frames, 2 * rows, 2 * columns)
    cos, sin = theirs.rope(latents)
    wanted = torch.stack([cos[0, :, 0, 0::2], sin[0, :, 0, 1::2]], dim=-1)
    assert torch.equal(Positions(theirs.rope)(latents), wanted)


def test_a_model_that_was_rounded_to_bfloat16_has_positions_in_float32() -> None:
    mine = ours(torch.nn.Module.to(pair()[1], torch.bfloat16))
    found = mine.rope(torch.zeros(1, CHANNELS, 2, 8, 12, dtype=torch.bfloat16))
    assert found.dtype == torch.float32


def test_in_bfloat16_it_is_as_near_to_float32_as_diffusers_is() -> None:
    theirs, mine = (torch.nn.Module.to(model, torch.bfloat16) for model in pair())
    given = batch(size=2, frames=3)
    names = ("hidden_states", "encoder_hidden_states")
    rounded = given | {name: given[name].bfloat16() for name in names}
    wanted, wanted_gradients = passes(theirs, rounded)
    found, gradients = passes(ours(mine), rounded)
    exact_model, _ = pair()
    exact_model.load_state_dict({name: one.float() for name, one in theirs.state_dict().items()})
    exact, exact_gradients = passes(exact_model, rounded | {name: rounded[name].float() for name in names})
    assert found.dtype == torch.bfloat16
    assert distance(found, exact) < min(0.03, 1.2 * distance(wanted, exact))
    assert worst(gradients, exact_gradients) < 1.2 * worst(wanted_gradients, exact_gradients)


@pytest.mark.parametrize("recomputed", [0, 1, 3])
def test_as_many_blocks_as_asked_for_are_computed_twice_and_change_nothing(recomputed: int) -> None:
    theirs, mine = pair()
    given = batch(size=2, frames=2)
    calls: list[int] = []
    for number, block in enumerate(WAN.blocks_of(mine)):
        block.register_forward_pre_hook(lambda *_, number=number: calls.append(number))
    wanted, wanted_gradients = passes(theirs, given)
    found, gradients = passes(ours(mine, recomputed=recomputed), given)
    assert distance(found, wanted) < FLOAT32
    assert worst(gradients, wanted_gradients) < FLOAT32
    assert calls == [*range(LAYERS), *reversed(range(recomputed))]


@pytest.mark.parametrize("recomputed", [0, LAYERS])
def test_masks_are_the_same_where_blocks_are_computed_twice(recomputed: int) -> None:
    one, other = pair()
    given = masked(batch(size=2, frames=2), 3, 9)
    wanted, wanted_gradients = passes(ours(one), given)
    found, gradients = passes(ours(other, recomputed=recomputed), given)
    assert distance(found, wanted) < FLOAT32
    assert worst(gradients, wanted_gradients) < FLOAT32


@pytest.mark.parametrize("recomputed", [0, LAYERS])
def test_adapters_of_lora_train_as_in_diffusers_forward(recomputed: int) -> None:
    theirs, mine = pair()
    given = batch(size=2, frames=2)
    for model in (theirs, mine):
        lora.add_adapters(model, Lora(rank=4, alpha=4), WAN.presets, seed=1)
        torch.manual_seed(2)
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(parameter, std=0.1)
    wanted, wanted_gradients = passes(theirs, given)
    found, gradients = passes(ours(mine, recomputed=recomputed), given)
    for layer in ("attn1.to_q", "attn2.to_k", "attn2.to_out.0", "ffn.net.2"):
        assert any(f"{layer}.lora_A" in name for name in gradients), layer
    assert distance(found, wanted) < FLOAT32
    assert worst(gradients, wanted_gradients) < FLOAT32


def test_compiled_blocks_are_called_as_diffusers_calls_them_with_gradients_and_without() -> None:
    theirs, mine = pair()
    given = batch(size=2, frames=2)
    for block in WAN.blocks_of(ours(mine)):
        vars(block)["forward"] = _WithGradients(eager=block.forward, compiled=block.forward)
    found, _ = passes(mine, given)
    assert distance(found, theirs(**given)[0]) < FLOAT32
    with torch.no_grad():
        assert distance(mine(**given)[0], theirs(**given)[0]) < FLOAT32


def test_names_and_class_stay_those_of_diffusers_and_so_does_the_output_for_pipelines() -> None:
    theirs, mine = pair()
    ours(mine)
    given = batch(frames=2) | {"return_dict": True}
    assert list(mine.state_dict()) == list(theirs.state_dict())
    assert type(mine) is type(theirs)
    assert distance(mine(**given).sample, theirs(**given).sample) < FLOAT32
