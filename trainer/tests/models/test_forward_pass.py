"""Our forward pass of each family computes what diffusers' does, forward and backward."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from oarlock_api.weights import Lora
from oarlock_trainer.ranks import preload

preload.settle_environment()
import torch  # noqa: E402 - reads the environment that was just settled
from family_pairs import none_or_all, of_any_number_of_blocks, of_every_case, of_every_family  # noqa: E402
from flux_pair import distance, worst  # noqa: E402
from forward_pairs import gradients  # noqa: E402

from oarlock_trainer.models.adapters import lora  # noqa: E402
from oarlock_trainer.models.compute.compiled import _WithGradients  # noqa: E402
from oarlock_trainer.models.objective.loss import MicroBatch, predict  # noqa: E402

if TYPE_CHECKING:
    from forward_pairs import Case, Pair
    from torch import Tensor

FLOAT32 = 1e-5
"""Relative distance in float32: of the prediction, and of each parameter's gradient."""


def in_one(found: Any) -> Tensor:
    """Z-Image answers with a list."""
    return found if torch.is_tensor(found) else torch.stack(list(found))


def passes(model: Any, given: dict[str, Any]) -> tuple[Tensor, dict[str, Tensor]]:
    """The prediction, and the gradients of its squared error."""
    prediction = in_one(model(**given)[0])
    return prediction.detach(), gradients(model, prediction.float().square().mean())


def seen(pair: Pair, model: Any) -> list[int]:
    """The numbers of the blocks that are called from now on."""
    calls: list[int] = []
    for number, block in enumerate(pair.family.blocks_of(model)):
        block.register_forward_pre_hook(lambda *_, number=number: calls.append(number))
    return calls


@of_every_case
def test_prediction_and_gradients_are_those_of_diffusers_in_float32(pair: Pair, case: Case) -> None:
    theirs, mine = pair.make(**case.variant)
    given = pair.batch(**case.batch)
    wanted, wanted_gradients = passes(theirs, given)
    found, found_gradients = passes(pair.ours(mine), given)
    assert found.shape == wanted.shape
    assert distance(found, wanted) < FLOAT32
    assert worst(found_gradients, wanted_gradients) < FLOAT32
    assert {name for name, one in wanted_gradients.items() if not one.any()} == case.idle
    without = {name for name, one in mine.named_parameters() if one.grad is None}
    assert without <= (case.idle if pair.leaves_out else set())


@of_every_family
def test_in_bfloat16_it_is_as_near_to_float32_as_diffusers_is(pair: Pair) -> None:
    theirs, mine = (torch.nn.Module.to(model, torch.bfloat16) for model in pair.make())
    exactly, _ = pair.make()
    exactly.load_state_dict({name: one.float() for name, one in theirs.state_dict().items()})
    given = pair.batch(**pair.usual.batch)

    def rounded(one: Any) -> Any:
        return one.bfloat16() if torch.is_tensor(one) else [part.bfloat16() for part in one]

    def exact(one: Any) -> Any:
        return one.float() if torch.is_tensor(one) else [part.float() for part in one]

    given |= {name: rounded(given[name]) for name in pair.rounded if given[name] is not None}
    wanted, wanted_gradients = passes(theirs, given)
    found, found_gradients = passes(pair.ours(mine), given)
    given |= {name: exact(given[name]) for name in pair.rounded if given[name] is not None}
    best, best_gradients = passes(exactly, given)
    assert found.dtype == torch.bfloat16
    assert distance(found, best) < min(pair.bfloat16, 1.2 * distance(wanted, best))
    assert worst(found_gradients, best_gradients) < 1.2 * worst(wanted_gradients, best_gradients)


@of_any_number_of_blocks
def test_as_many_blocks_as_asked_for_are_computed_twice_and_change_nothing(pair: Pair, recomputed: int) -> None:
    theirs, mine = pair.make()
    given, calls = pair.batch(**pair.usual.batch), seen(pair, mine)
    wanted, wanted_gradients = passes(theirs, given)
    found, found_gradients = passes(pair.ours(mine, recomputed=recomputed), given)
    assert distance(found, wanted) < FLOAT32
    assert worst(found_gradients, wanted_gradients) < FLOAT32
    assert calls == [*range(pair.blocks), *reversed(range(recomputed))]


@of_every_family
def test_without_gradients_nothing_is_recomputed(pair: Pair) -> None:
    mine = pair.ours(pair.make()[1])
    mine.forward.recomputed = pair.blocks
    with torch.no_grad():
        found = mine(**pair.batch(**pair.usual.batch))[0]
    assert all(one.grad_fn is None for one in found)


@none_or_all
def test_adapters_of_lora_train_as_in_diffusers_forward(pair: Pair, recomputed: int) -> None:
    theirs, mine = pair.make()
    given = pair.batch(**pair.usual.batch)
    for model in (theirs, mine):
        lora.add_adapters(model, Lora(rank=4, alpha=4, targets=pair.targets), pair.family.presets, seed=1)
        torch.manual_seed(2)
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(parameter, std=0.1)
    wanted, wanted_gradients = passes(theirs, given)
    found, found_gradients = passes(pair.ours(mine, recomputed=recomputed), given)
    for layer in pair.adapted:
        assert any(f"{layer}.lora_A" in name for name in found_gradients), layer
    assert distance(found, wanted) < FLOAT32
    assert worst(found_gradients, wanted_gradients) < FLOAT32


@of_every_family
def test_compiled_blocks_are_called_as_diffusers_calls_them_with_gradients_and_without(pair: Pair) -> None:
    theirs, mine = pair.make()
    given = pair.batch(**pair.usual.batch)
    for block in pair.family.blocks_of(pair.ours(mine)):
        vars(block)["forward"] = _WithGradients(eager=block.forward, compiled=block.forward)
    wanted, _ = passes(theirs, given)
    found, _ = passes(mine, given)
    assert distance(found, wanted) < FLOAT32
    with torch.no_grad():
        assert distance(in_one(mine(**given)[0]), wanted) < FLOAT32


@of_every_family
def test_names_and_class_stay_those_of_diffusers_and_so_does_the_output_for_pipelines(pair: Pair) -> None:
    theirs, mine = pair.make()
    pair.ours(mine)
    given = pair.batch(**pair.usual.batch) | {"return_dict": True}
    assert list(mine.state_dict()) == list(theirs.state_dict())
    assert type(mine) is type(theirs)
    for found, wanted in zip(mine(**given).sample, theirs(**given).sample, strict=True):
        assert distance(found, wanted) < FLOAT32


@none_or_all
def test_a_masked_text_token_has_no_influence_and_the_others_are_seen_as_if_it_were_not_there(
    pair: Pair, recomputed: int
) -> None:
    mine, other = pair.make()
    pair.ours(mine, recomputed=recomputed)
    pair.ours(other)
    given = two_samples(pair, mine)
    mask = torch.tensor([[9], [4]]) > torch.arange(9)
    changed = given.text.clone()
    changed[1, 4:] += 100.0

    found = predicted(pair, mine, replace(given, text_mask=mask))
    found_gradients = gradients(mine, found.square().mean())
    alone = torch.cat([predicted(pair, other, sample(given, place, length)) for place, length in enumerate((9, 4))])
    assert distance(found, alone) < FLOAT32
    assert worst(found_gradients, gradients(other, alone.square().mean())) < FLOAT32
    with torch.no_grad():
        assert torch.equal(predicted(pair, mine, replace(given, text=changed, text_mask=mask)), found)
        assert distance(predicted(pair, mine, replace(given, text=changed)), found) > 0.001


class Wrapped(torch.nn.Module):
    """As engines wrap it, with a configuration of their own."""

    config = None

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.module = model

    def forward(self, *arguments: Any, **named: Any) -> Any:
        return self.module(*arguments, **named)


@of_every_family
def test_a_mask_of_all_changes_nothing_and_a_wrapped_model_is_given_the_same(pair: Pair) -> None:
    mine = pair.ours(pair.make()[1])
    given = two_samples(pair, mine)
    with torch.no_grad():
        found = predicted(pair, mine, replace(given, text_mask=torch.ones(2, 9, dtype=torch.bool)))
        bare, wrapped = (predicted(pair, mine, given, within=one) for one in (mine, Wrapped(mine)))
    assert distance(found, bare) < FLOAT32
    assert torch.equal(wrapped, bare)


def predicted(pair: Pair, model: Any, batch: MicroBatch, *, within: Any = None) -> Tensor:
    """By way of the family's velocity; `within`: the model as it is wrapped."""
    has_guidance = pair.family.architecture(model.config).has_guidance
    return predict(within or model, batch, velocity=pair.code.velocity, has_guidance=has_guidance)


def two_samples(pair: Pair, model: Any) -> MicroBatch:
    """A micro-batch as a rank makes it, of texts of nine tokens; of videos, if the family has such."""
    source = torch.Generator().manual_seed(1)
    shape, frames = pair.family.architecture(model.config), 2 if pair.family.is_video else 1

    def random(*size: int) -> Tensor:
        return torch.randn(2, *size, generator=source)

    return MicroBatch(
        latents=random(shape.latent_channels * frames, 6, 8), noise=random(shape.latent_channels * frames, 6, 8),
        text=random(9, shape.text_width), pooled=random(shape.pooled_width), sigmas=torch.tensor([0.2, 0.9]),
        guidance=torch.tensor([1.0, 3.5]), text_mask=None,
    )  # fmt: skip


def sample(batch: MicroBatch, place: int, length: int) -> MicroBatch:
    """One of them alone, whose text has this length."""
    own = {
        name: getattr(batch, name)[place : place + 1] for name in ("latents", "noise", "pooled", "sigmas", "guidance")
    }
    return replace(batch, **own, text=batch.text[place : place + 1, :length])
