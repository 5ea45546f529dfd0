"""Weights of bfloat16 without float32 masters learn what is far below their own precision."""

from __future__ import annotations

import pytest
import torch

from oarlock_api.optimization import Optimizer as Settings
from oarlock_trainer.engine import adamw_bf16
from oarlock_trainer.engine.adamw_bf16 import stochastically_rounded
from oarlock_trainer.engine.optimizers import make_optimizer

DRAWS = 200_000


def settings(**fields: object) -> Settings:
    return Settings.model_validate({"name": "AdamWBF16", "learningRate": 1e-4, "weightDecay": 0.0} | fields)


@pytest.mark.parametrize("value", [1.001, -1.001, 0.3333, 1.0077, -3e-7, 5e4])
def test_values_are_rounded_to_one_of_their_neighbours_and_are_right_on_average(value: float) -> None:
    values = torch.full((DRAWS,), value)
    found = stochastically_rounded(values, torch.Generator().manual_seed(1)).double()
    neighbours = found.unique()
    assert len(neighbours) == 2
    assert neighbours[0] < values[0] < neighbours[1]
    gap = float(neighbours[1] - neighbours[0])
    assert float(found.mean()) == pytest.approx(float(values[0]), abs=4 * 0.5 * gap / DRAWS**0.5)


def test_what_bfloat16_can_hold_stays() -> None:
    values = torch.randn(1000, generator=torch.Generator().manual_seed(1)).bfloat16()
    assert torch.equal(stochastically_rounded(values.float(), torch.Generator().manual_seed(2)), values)


def loss_of(weights: torch.Tensor) -> torch.Tensor:
    """A small model of bfloat16: inputs that its weights, all near 1, should map to a little less than they do."""
    inputs = torch.rand(64, 256, generator=torch.Generator().manual_seed(3))
    return ((inputs @ weights.float() - 0.97 * inputs.sum(1, keepdim=True)) ** 2).mean()


def trained(weights: torch.Tensor, optimizer: torch.optim.Optimizer, *, steps: int = 200) -> torch.Tensor:
    for _ in range(steps):
        leaf = weights.detach().requires_grad_()
        (weights.grad,) = torch.autograd.grad(loss_of(leaf), leaf)
        optimizer.step()
    return weights


def ones(dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.ones(256, 1, dtype=dtype)


def test_updates_below_the_precision_of_bfloat16_are_learnt_as_with_float32_masters() -> None:
    """A step is 1e-4; the next smaller number below 1 is 0.0039 away, so that rounding to the nearest stands still."""
    float32, nearest, chance = ones(torch.float32), ones(), ones()
    trained(float32, torch.optim.AdamW([float32], lr=1e-4, weight_decay=0.0))
    trained(nearest, torch.optim.AdamW([nearest], lr=1e-4, weight_decay=0.0))
    trained(chance, make_optimizer([chance], settings()))
    wanted, began = float(loss_of(float32)), float(loss_of(ones()))
    assert float(loss_of(nearest)) == began > 2 * wanted
    assert abs(float(loss_of(chance)) - wanted) < 0.1 * (began - wanted)


def test_a_second_moment_of_bfloat16_falls_when_gradients_do() -> None:
    """0.999 of it, rounded to the nearest bfloat16, is itself."""
    weights = ones()
    optimizer = make_optimizer([weights], settings())
    for scale in [1.0] * 5 + [0.0] * 1000:
        weights.grad = torch.full_like(weights, scale)
        optimizer.step()
    assert float(optimizer.state[weights]["exp_avg_sq"].float().mean()) == pytest.approx(0.005 * 0.999**1000, rel=0.1)


def test_float32_weights_are_not_rounded_and_follow_adamw() -> None:
    found, expected = ones(torch.float32), ones(torch.float32)
    trained(found, make_optimizer([found], settings(weightDecay=0.1)), steps=20)
    trained(expected, torch.optim.AdamW([expected], lr=1e-4, weight_decay=0.1), steps=20)
    torch.testing.assert_close(found, expected, rtol=0, atol=20 * 1e-4 * 0.01)
    assert not torch.equal(found, found.bfloat16().float())


def test_chances_are_those_of_seed_and_step() -> None:
    one, same, other, later = (ones() for _ in range(4))
    for weights, seed, count in ((one, 7, 0), (same, 7, 0), (other, 8, 0), (later, 7, 1)):
        optimizer = make_optimizer([weights], settings(learningRate=1e-3), seed=seed)
        optimizer.param_groups[0]["k"] = count
        trained(weights, optimizer, steps=1)
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert not torch.equal(one, later)


def test_large_tensors_are_updated_in_pieces_to_their_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adamw_bf16, "PIECE", 100)
    found, expected = ones(torch.float32), ones(torch.float32)
    trained(found, make_optimizer([found], settings()), steps=1)
    monkeypatch.undo()
    trained(expected, make_optimizer([expected], settings()), steps=1)
    assert torch.equal(found, expected)
    assert bool((found < 1.0).all())


def test_weight_decay_of_matrices_leaves_vectors_alone() -> None:
    """One step: its own moments are not rounded yet."""
    found, expected = (([torch.full((30, 20), 2.0), torch.full((30,), 2.0)]) for _ in range(2))
    ours = make_optimizer(found, settings(learningRate=1e-2, weightDecay=0.5, weightDecayOn="Matrices"))
    groups = [{"params": expected[:1]}, {"params": expected[1:], "weight_decay": 0.0}]
    theirs = torch.optim.AdamW(groups, lr=1e-2, weight_decay=0.5)
    for weights, optimizer in ((found, ours), (expected, theirs)):
        for one in weights:
            one.grad = torch.ones_like(one)
        optimizer.step()
    torch.testing.assert_close(found, expected)
    assert float(found[1][0]) == pytest.approx(1.99)
