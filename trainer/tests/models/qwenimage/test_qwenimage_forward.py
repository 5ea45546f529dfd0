"""What is installed in a Qwen-Image transformer computes what diffusers' own does, forward and backward."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from oarlock_api.weights import Lora
from oarlock_trainer.ranks import preload

preload.settle_environment()
import torch  # noqa: E402 - reads the environment that was just settled
from flux_pair import distance, worst  # noqa: E402
from qwenimage_pair import CHANNELS, batch, pair  # noqa: E402

from oarlock_api.engine import Attention  # noqa: E402
from oarlock_trainer.models.adapters import lora  # noqa: E402
from oarlock_trainer.models.compute.attention import attend_with  # noqa: E402
from oarlock_trainer.models.compute.compiled import _WithGradients  # noqa: E402
from oarlock_trainer.models.qwenimage import forward  # noqa: E402
from oarlock_trainer.models.qwenimage.family import QWEN_IMAGE  # noqa: E402
from oarlock_trainer.models.qwenimage.positions import Positions  # noqa: E402
from oarlock_trainer.models.qwenimage.tokens import unpack  # noqa: E402
from oarlock_trainer.models.qwenimage.velocity import velocity  # noqa: E402

if TYPE_CHECKING:
    from torch import Tensor

FLOAT32 = 1e-5
"""Relative distance in float32: of the prediction, and of each parameter's gradient."""
LAYERS = 3


def ours(model: Any, *, recomputed: int = 0) -> Any:
    forward.install(model, attend=attend_with(Attention.SDPA), recomputed=recomputed)
    return model


def passes(model: Any, given: dict[str, Any]) -> tuple[Tensor, dict[str, Tensor]]:
    """(prediction, gradient of each parameter that has one) of a squared error."""
    model.zero_grad(set_to_none=True)
    prediction = model(**given)[0]
    prediction.float().square().mean().backward()
    return prediction.detach(), {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def apart(found: dict[str, Tensor], wanted: dict[str, Tensor]) -> float:
    """The largest distance of any gradient that diffusers has. Others are zeros: the last block's text reaches nothing."""
    others = found.keys() - wanted.keys()
    assert all(name.startswith(f"transformer_blocks.{LAYERS - 1}.") and not found[name].any() for name in others)
    return worst({name: found[name] for name in wanted}, wanted)


@pytest.mark.parametrize(
    ("lengths", "rows", "columns"),
    [((9,), 4, 6), ((9, 4, 7), 4, 6), ((5, 12), 5, 3), ((6, 6), 1, 8)],
    ids=["one", "several lengths", "odd sides", "one length"],
)
def test_prediction_and_gradients_are_those_of_diffusers_in_float32(
    lengths: tuple[int, ...], rows: int, columns: int
) -> None:
    theirs, mine = pair()
    given = batch(lengths=lengths, rows=rows, columns=columns)
    wanted, wanted_gradients = passes(theirs, given)
    found, gradients = passes(ours(mine), given)
    assert distance(found, wanted) < FLOAT32
    assert gradients.keys() == dict(mine.named_parameters()).keys()
    assert apart(gradients, wanted_gradients) < FLOAT32


def test_what_the_family_gives_the_model_is_what_diffusers_own_mask_says() -> None:
    theirs, mine = pair()
    given = batch(lengths=(9, 4, 7))
    tokens = unpack(given["hidden_states"].transpose(1, 2).unflatten(2, (4, 6)))
    found = velocity(
        ours(mine), tokens, given["timestep"], text=given["encoder_hidden_states"], pooled=torch.zeros(3, 0),
        text_mask=given["encoder_hidden_states_mask"], guidance=None,
    )  # fmt: skip
    wanted = unpack(theirs(**given)[0].transpose(1, 2).unflatten(2, (4, 6)))
    assert found.shape == (3, CHANNELS, 8, 12)
    assert distance(found, wanted) < FLOAT32


def test_the_bare_class_refuses_a_mask_of_ours() -> None:
    theirs, _ = pair()
    given = batch(lengths=(9, 4)) | {"encoder_hidden_states_mask": None}
    with pytest.raises(ValueError, match="attention_mask"):
        theirs(**given, attention_kwargs={"attention_mask": torch.ones(2, 1, 1, 33, dtype=torch.bool)})


@pytest.mark.parametrize(("rows", "columns", "text"), [(4, 6, 9), (5, 3, 20), (1, 64, 1)])
def test_positions_are_diffusers_own_as_real_numbers(rows: int, columns: int, text: int) -> None:
    theirs, _ = pair()
    embedding = theirs.pos_embed
    shapes = [[(1, rows, columns)]] * 2
    image, words = embedding(shapes, device=torch.device("cpu"), max_txt_seq_len=text)
    found = Positions(embedding.axes_dim, embedding.theta)(shapes, torch.device("cpu"), text)
    assert torch.equal(found, torch.view_as_real(torch.cat([words, image])))


@pytest.mark.parametrize(
    "shapes", [[[]], [[(2, 4, 6)]], [[(1, 4, 6), (2, 4, 6)]]], ids=["none", "a video", "one behind"]
)
def test_what_this_forward_pass_does_not_know_is_refused(shapes: list[list[tuple[int, int, int]]]) -> None:
    _, mine = pair()
    with pytest.raises(ValueError, match="img_shapes"):
        ours(mine)(**batch() | {"img_shapes": shapes})


def test_in_bfloat16_it_is_as_near_to_float32_as_diffusers_is() -> None:
    theirs, mine = (torch.nn.Module.to(model, torch.bfloat16) for model in pair())
    names = ("hidden_states", "encoder_hidden_states", "timestep")
    given = batch(lengths=(9, 4))
    rounded = given | {name: given[name].bfloat16() for name in names}
    wanted, wanted_gradients = passes(theirs, rounded)
    found, gradients = passes(ours(mine), rounded)
    exact, exact_gradients = passes(
        torch.nn.Module.to(theirs, torch.float32), rounded | {name: rounded[name].float() for name in names}
    )
    assert found.dtype == torch.bfloat16
    assert distance(found, exact) < min(0.03, 1.2 * distance(wanted, exact))
    assert apart(gradients, exact_gradients) < 1.2 * worst(wanted_gradients, exact_gradients)


@pytest.mark.parametrize("recomputed", [0, 1, 3])
def test_as_many_blocks_as_asked_for_are_computed_twice_and_change_nothing(recomputed: int) -> None:
    theirs, mine = pair()
    given = batch(lengths=(9, 4))
    calls: list[int] = []
    for number, block in enumerate(QWEN_IMAGE.blocks_of(mine)):
        block.register_forward_pre_hook(lambda *_, number=number: calls.append(number))
    wanted, wanted_gradients = passes(theirs, given)
    found, gradients = passes(ours(mine, recomputed=recomputed), given)
    assert distance(found, wanted) < FLOAT32
    assert apart(gradients, wanted_gradients) < FLOAT32
    assert calls == [*range(LAYERS), *reversed(range(recomputed))]


@pytest.mark.parametrize("recomputed", [0, LAYERS])
def test_adapters_of_lora_train_as_in_diffusers_forward(recomputed: int) -> None:
    theirs, mine = pair()
    given = batch(lengths=(9, 4))
    for model in (theirs, mine):
        lora.add_adapters(model, Lora(rank=4, alpha=4), QWEN_IMAGE.presets, seed=1)
        torch.manual_seed(2)
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(parameter, std=0.1)
    wanted, wanted_gradients = passes(theirs, given)
    found, gradients = passes(ours(mine, recomputed=recomputed), given)
    assert any("txt_mlp.net.2.lora_A" in name for name in gradients)
    assert distance(found, wanted) < FLOAT32
    assert apart(gradients, wanted_gradients) < FLOAT32


def test_compiled_blocks_are_called_as_diffusers_calls_them_with_gradients_and_without() -> None:
    theirs, mine = pair()
    given = batch(lengths=(9, 4))
    for block in QWEN_IMAGE.blocks_of(ours(mine)):
        vars(block)["forward"] = _WithGradients(eager=block.forward, compiled=block.forward)
    found, _ = passes(mine, given)
    assert distance(found, theirs(**given)[0]) < FLOAT32
    with torch.no_grad():
        assert distance(mine(**given)[0], theirs(**given)[0]) < FLOAT32


def test_names_and_class_stay_those_of_diffusers_and_so_does_the_output_for_pipelines() -> None:
    theirs, mine = pair()
    ours(mine)
    given = batch() | {"return_dict": True}
    assert list(mine.state_dict()) == list(theirs.state_dict())
    assert type(mine) is type(theirs)
    assert distance(mine(**given).sample, theirs(**given).sample) < FLOAT32
