"""Each optimizer does what its paper says, on whole parameters and on one flat shard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from oarlock_api.optimization import Optimizer as Settings
from oarlock_trainer.engine import adamw_8bit, pieces
from oarlock_trainer.engine.optimizers import make_optimizer

if TYPE_CHECKING:
    from torch import Tensor

STEPS = 5


def settings(**fields: Any) -> Settings:
    return Settings.model_validate({"learningRate": 1e-2} | fields)


def trained(parameters: list[Tensor], made: Settings) -> list[Tensor]:
    """The parameters after some updates with gradients that do not depend on how they are cut."""
    optimizer = make_optimizer(parameters, made)
    generator = torch.Generator().manual_seed(1)
    for _ in range(STEPS):
        gradient = torch.randn(sum(one.numel() for one in parameters), generator=generator)
        for one, part in zip(parameters, gradient.split([one.numel() for one in parameters]), strict=True):
            one.grad = part.view_as(one).clone()
        optimizer.step()
    return parameters


def start(size: int) -> Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(2))


def test_lion_follows_its_paper_element_by_element() -> None:
    first, second, rate, decay = 0.8, 0.95, 1e-2, 0.1
    (found,) = trained([start(50)], settings(name="Lion", betas=[first, second], weightDecay=decay))
    weights, moments = start(50).tolist(), [0.0] * 50
    generator = torch.Generator().manual_seed(1)
    for _ in range(STEPS):
        for place, gradient in enumerate(torch.randn(50, generator=generator).tolist()):
            direction = first * moments[place] + (1 - first) * gradient
            sign = (direction > 0) - (direction < 0)
            weights[place] -= rate * (sign + decay * weights[place])
            moments[place] = second * moments[place] + (1 - second) * gradient
    torch.testing.assert_close(found, torch.tensor(weights))


def test_a_share_that_its_kernel_cannot_count_is_updated_in_pieces_which_change_no_bit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It counts elements in an int of 32 bits: FLUX.1's share on four GPUs would come out negative."""
    from bitsandbytes import functional  # noqa: PLC0415 - takes seconds

    given: list[int] = []

    def note(name: str, gradients: Tensor, *rest: Any, **how: Any) -> None:
        given.append(gradients.numel())
        update(name, gradients, *rest, **how)

    (whole,) = trained([start(9000)], settings(name="AdamW8Bit", weightDecay=0.1))
    update = functional.optimizer_update_8bit_blockwise
    monkeypatch.setattr(functional, "optimizer_update_8bit_blockwise", note)
    monkeypatch.setattr(adamw_8bit, "_PIECE", 4096)
    (cut,) = trained([start(9000)], settings(name="AdamW8Bit", weightDecay=0.1))
    assert torch.equal(cut, whole)
    assert given == [4096, 4096, 808] * STEPS


@pytest.mark.parametrize("name", ["AdamW", "Lion"])
def test_one_flat_shard_and_the_parameters_in_it_are_updated_alike(name: str) -> None:
    (flat,) = trained([start(1000)], settings(name=name))
    parts = trained([start(1000)[:600].view(20, 30).clone(), start(1000)[600:].clone()], settings(name=name))
    torch.testing.assert_close(flat, torch.cat([part.flatten() for part in parts]), rtol=0, atol=0)


def test_lion_in_pieces_is_lion_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = [(7,), (1000,), (13, 17), (500,)]
    at_once = trained([start(torch.Size(size).numel()).view(size) for size in sizes], settings(name="Lion"))
    monkeypatch.setattr(pieces, "PIECE", 300)
    in_pieces = trained([start(torch.Size(size).numel()).view(size) for size in sizes], settings(name="Lion"))
    torch.testing.assert_close(at_once, in_pieces, rtol=0, atol=0)


def test_adamw_is_torchs_with_the_jobs_numbers() -> None:
    made = settings(betas=[0.8, 0.9], weightDecay=0.2, options={"eps": 1e-3})
    (found,) = trained([start(100)], made)
    expected = start(100)
    optimizer = torch.optim.AdamW([expected], lr=1e-2, betas=(0.8, 0.9), weight_decay=0.2, eps=1e-3)
    generator = torch.Generator().manual_seed(1)
    for _ in range(STEPS):
        expected.grad = torch.randn(100, generator=generator)
        optimizer.step()
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("name", ["AdamW", "Lion", "AdamW8Bit", "AdamWScheduleFree"])
def test_weight_decay_of_matrices_leaves_biases_and_norms_alone(name: str) -> None:
    def after(on: str) -> list[Tensor]:
        parameters = [start(600).view(20, 30).clone(), start(20)]
        return trained(parameters, settings(name=name, weightDecay=0.9, weightDecayOn=on))

    (decayed, kept), (all_decayed, both) = after("Matrices"), after("All")
    (free,) = trained([start(600).view(20, 30).clone()], settings(name=name, weightDecay=0.0))[:1]
    assert torch.equal(decayed, all_decayed)
    assert not torch.equal(decayed, free)
    plain = trained([start(600).view(20, 30).clone(), start(20)], settings(name=name, weightDecay=0.0))[1]
    assert torch.equal(kept, plain)
    assert not torch.equal(both, plain)


def test_where_all_are_matrices_or_none_is_there_is_no_empty_group() -> None:
    made = settings(weightDecayOn="Matrices")
    for one in (start(600).view(20, 30), start(20)):
        (group,) = make_optimizer([one], made).param_groups
        assert len(group["params"]) == 1


def test_betas_that_are_not_given_are_the_algorithms_own() -> None:
    found = {name: make_optimizer([start(2)], settings(name=name)).defaults["betas"] for name in ("AdamW", "Lion")}
    assert found == {"AdamW": (0.9, 0.999), "Lion": (0.9, 0.99)}
