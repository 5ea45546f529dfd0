"""Prodigy's numbers are those of its authors' own optimizer."""

from __future__ import annotations

from typing import Any

import prodigyopt
import pytest
import torch

from oarlock_api.optimization import Optimizer as Settings
from oarlock_local.pytest_tiers import quick_first
from oarlock_trainer.engine import pieces
from oarlock_trainer.engine.optimizers import make_optimizer

STEPS = 60
SIZES = [(13, 17), (17, 5), (5,)]


def start() -> list[torch.Tensor]:
    """Weights of three layers; the second is 0, as the half of an adapter is.

    In float64: d grows by what it is itself, and so does a difference of the last bit of a float32.
    """
    generator = torch.Generator().manual_seed(3)
    one, two, three = (torch.randn(size, generator=generator, dtype=torch.float64) for size in SIZES)
    return [one, two.zero_(), three]


def learn(optimizer: torch.optim.Optimizer, weights: list[torch.Tensor], *, first: int = 0, last: int = STEPS) -> None:
    """Steps towards a target, with a rate that rises from 0 and falls again."""
    inputs = torch.randn(64, 13, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    target = torch.randn(64, 5, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    for step in range(first, last):
        leaves = [one.detach().requires_grad_() for one in weights]
        loss = (((inputs @ leaves[0]).tanh() @ leaves[1] + leaves[2] - target) ** 2).mean()
        for one, gradient in zip(weights, torch.autograd.grad(loss, leaves), strict=True):
            one.grad = gradient
        for group in optimizer.param_groups:
            group["lr"] = min(step / 5, 1.0) * (1.0 - step / STEPS)
        optimizer.step()


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ({}, {}),
        ({"dCoef": 2.0, "d0": 1e-5}, {"d_coef": 2.0, "d0": 1e-5}),
        ({"safeguardWarmup": True, "eps": 1e-6}, {"safeguard_warmup": True, "eps": 1e-6}),
    ],
)
@pytest.mark.parametrize("on", quick_first(["All", "Matrices"]))
def test_weights_and_d_are_those_of_the_authors(ours: dict[str, Any], theirs: dict[str, Any], on: str) -> None:
    decay = {"weightDecay": 0.1, "weightDecayOn": on}
    settings = Settings.model_validate(
        {"name": "Prodigy", "learningRate": 1.0, "betas": [0.9, 0.99], "options": ours} | decay
    )
    found, expected = start(), start()
    optimizer = make_optimizer(found, settings)
    groups = [{"params": expected}]
    if on == "Matrices":
        groups = [{"params": expected[:2]}, {"params": expected[2:], "weight_decay": 0.0}]
    reference = prodigyopt.Prodigy(groups, lr=1.0, betas=(0.9, 0.99), weight_decay=0.1, **theirs)
    learn(optimizer, found)
    learn(reference, expected)
    d = optimizer.param_groups[0]["d"]
    assert d > 100 * theirs.get("d0", 1e-6)  # it has found one
    assert d == pytest.approx(reference.param_groups[0]["d"], rel=1e-9)
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-10)


def test_bias_correction_is_that_of_the_authors() -> None:
    """From a rate above 0 on: they count no step of a rate of 0, which changes the correction."""
    settings = Settings.model_validate(
        {"name": "Prodigy", "learningRate": 1.0, "weightDecay": 0.0, "options": {"biasCorrection": True}}
    )
    found, expected = start(), start()
    optimizer = make_optimizer(found, settings)
    reference = prodigyopt.Prodigy([{"params": expected}], lr=1.0, use_bias_correction=True)
    learn(optimizer, found, first=1)
    learn(reference, expected, first=1)
    assert optimizer.param_groups[0]["d"] == pytest.approx(reference.param_groups[0]["d"], rel=1e-9)
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-10)


def test_tensors_in_batches_are_updated_as_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings.model_validate({"name": "Prodigy", "learningRate": 1.0})
    at_once, in_batches = start(), start()
    learn(make_optimizer(at_once, settings), at_once)
    monkeypatch.setattr(pieces, "PIECE", 90)
    learn(make_optimizer(in_batches, settings), in_batches)
    torch.testing.assert_close(at_once, in_batches, rtol=1e-8, atol=1e-10)
