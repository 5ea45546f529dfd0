"""Our forward pass of Z-Image computes what diffusers' does, forward and backward."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from oarlock_api.weights import Lora
from oarlock_trainer.ranks import preload

preload.settle_environment()
import torch  # noqa: E402 - reads the environment that was just settled
from flux_pair import distance, worst  # noqa: E402
from zimage_pair import batch, pair  # noqa: E402

from oarlock_api.engine import Attention  # noqa: E402
from oarlock_trainer.models.adapters import lora  # noqa: E402
from oarlock_trainer.models.compute.attention import attend_with  # noqa: E402
from oarlock_trainer.models.zimage import forward  # noqa: E402
from oarlock_trainer.models.zimage.family import Z_IMAGE  # noqa: E402

if TYPE_CHECKING:
    from torch import Tensor

FLOAT32 = 1e-5
"""Relative distance in float32: of the prediction, and of each parameter's gradient."""
BFLOAT16 = 0.03
"""Relative distance of a prediction in bfloat16 from that in float32, weights and inputs being the same."""


def ours(model: Any, *, recomputed: int = 0) -> Any:
    forward.install(model, attend=attend_with(Attention.SDPA), recomputed=recomputed)
    return model


def passes(model: Any, given: dict[str, Any]) -> tuple[Tensor, dict[str, Tensor]]:
    """(prediction, gradient of each trained parameter) of a squared error."""
    model.zero_grad(set_to_none=True)
    prediction = torch.stack(list(model(**given)[0]))
    prediction.float().square().mean().backward()
    return prediction.detach(), {name: p.grad for name, p in model.named_parameters() if p.requires_grad}


@pytest.mark.parametrize(
    ("lengths", "height", "width"),
    [((9,), 8, 12), ((32,), 16, 16), ((9, 40, 32), 8, 12), ((5, 17, 30), 12, 4), ((33, 33), 16, 8)],
    ids=["one", "nothing is padded", "several lengths", "one padded length", "one length"],
)
def test_prediction_and_gradients_are_those_of_diffusers_in_float32(
    lengths: tuple[int, ...], height: int, width: int
) -> None:
    theirs, mine = pair()
    given = batch(lengths=lengths, height=height, width=width)
    wanted, wanted_gradients = passes(theirs, given)
    found, gradients = passes(ours(mine), given)
    assert distance(found, wanted) < FLOAT32
    seen = {name: one for name, one in wanted_gradients.items() if one is not None and one.norm() > 0}
    assert len(seen) >= len(wanted_gradients) - 2  # of tokens for padding, where nothing is padded
    assert worst({name: gradients[name] for name in seen}, seen) < FLOAT32
    assert all(gradients[name] is None or not gradients[name].any() for name in wanted_gradients.keys() - seen)


def test_in_bfloat16_it_is_as_near_to_float32_as_diffusers_is() -> None:
    theirs, mine = (torch.nn.Module.to(model, torch.bfloat16) for model in pair())
    exact_given = batch(lengths=(9, 40))
    rounded = {name: [one.bfloat16() for one in exact_given[name]] for name in ("x", "cap_feats")}
    given = exact_given | rounded
    wanted, wanted_gradients = passes(theirs, given)
    found, gradients = passes(ours(mine), given)
    exact, exact_gradients = passes(
        torch.nn.Module.to(theirs, torch.float32),
        given | {name: [one.float() for one in values] for name, values in rounded.items()},
    )
    assert found.dtype == torch.bfloat16
    assert distance(found, exact) < min(BFLOAT16, 1.2 * distance(wanted, exact))
    assert worst(gradients, exact_gradients) < 1.2 * worst(wanted_gradients, exact_gradients)


@pytest.mark.parametrize("recomputed", [0, 1, 2, 4])
def test_as_many_blocks_as_asked_for_are_computed_twice_and_change_nothing(recomputed: int) -> None:
    theirs, mine = pair()
    given = batch(lengths=(9, 40))
    calls: list[int] = []
    for number, block in enumerate(Z_IMAGE.blocks_of(mine)):
        block.register_forward_pre_hook(lambda *_, number=number: calls.append(number))
    wanted, wanted_gradients = passes(theirs, given)
    found, gradients = passes(ours(mine, recomputed=recomputed), given)
    assert distance(found, wanted) < FLOAT32
    assert worst(gradients, wanted_gradients) < FLOAT32
    assert calls[:4] == [0, 1, 2, 3]
    assert sorted(calls[4:]) == list(range(recomputed))


def test_adapters_of_lora_train_as_in_diffusers_forward() -> None:
    theirs, mine = pair()
    given = batch(lengths=(9, 40))
    for model in (theirs, mine):
        lora.add_adapters(model, Lora(rank=4, alpha=4), Z_IMAGE.presets, seed=1)
        torch.manual_seed(2)
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(parameter, std=0.1)
    wanted, wanted_gradients = passes(theirs, given)
    found, gradients = passes(ours(mine, recomputed=2), given)
    assert any("feed_forward.w2.lora_A" in name for name in gradients)
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
    assert distance(ours(mine)(**given).sample[0], theirs(**given).sample[0]) < FLOAT32
