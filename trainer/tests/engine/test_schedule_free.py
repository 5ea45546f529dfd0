"""Schedule-free AdamW: its average is what is looked at, saved and exported, and looking changes nothing."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from schedulefree import AdamWScheduleFree
from torch import nn

from oarlock_api.training import Training
from oarlock_trainer.engine.around import judged
from oarlock_trainer.engine.engine import AVERAGE, MASTER, Engine
from oarlock_trainer.engine.initialize import initialize
from oarlock_trainer.engine.learning_rate import learning_rate
from oarlock_trainer.runtime.job import RankInfo

ALONE = RankInfo(rank=0, local_rank=0, world_size=1, local_world_size=1)
OPTIMIZER = {
    "name": "AdamWScheduleFree", "learningRate": 1e-2, "betas": [0.8, 0.99], "weightDecay": 0.1,
    "schedule": {"warmupSteps": 3},
}  # fmt: skip
TRAINING = Training.model_validate(
    {
        "model": {"family": "Flux1", "path": "/models/flux"},
        "steps": 10,
        "engine": {"strategy": "DDP"},
        "optimizer": OPTIMIZER,
        "gradientClipping": {"method": "None"},
        "data": {"datasets": [{"name": "photos", "source": {"path": "/data"}}]},
    }
)


def model(dtype: torch.dtype) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4)).to(dtype)


def loss(module: nn.Module, step: int) -> torch.Tensor:
    inputs = torch.randn(32, 8, generator=torch.Generator().manual_seed(step))
    dtype = next(module.parameters()).dtype
    found: torch.Tensor = ((module(inputs.to(dtype)).float() - inputs[:, :4]) ** 2).mean()
    return found


def train(engine: Engine, first: int, last: int) -> None:
    for step in range(first, last):
        engine.backward(loss(engine.model, step))
        engine.step(learning_rate(TRAINING.optimizer, step, 10))


def values(module: nn.Module) -> list[torch.Tensor]:
    return [one.detach().clone() for one in module.parameters()]


def state(engine: Engine) -> dict[tuple[str, str], torch.Tensor]:
    return {(part.name, part.slot): part.values.clone() for part in engine.parts()}


def equal(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return bool(one.keys() == other.keys()) and all(torch.equal(one[key], other[key]) for key in one)
    return all(torch.equal(left, right) for left, right in zip(one, other, strict=True))


def test_what_is_looked_at_and_saved_is_the_librarys_average() -> None:
    engine = initialize(model(torch.float32), TRAINING, ALONE)
    train(engine, 0, 6)
    twin = model(torch.float32)
    library = AdamWScheduleFree(twin.parameters(), lr=1e-2, betas=(0.8, 0.99), weight_decay=0.1)
    library.train()
    for step in range(6):
        loss(twin, step).backward()
        library.param_groups[0]["lr"] = learning_rate(TRAINING.optimizer, step, 10)
        library.step()
        library.zero_grad()
    assert equal(values(engine.weights), values(twin))
    library.eval()
    with judged(engine) as looked_at:
        torch.testing.assert_close(values(looked_at), values(twin))
    saved = state(engine)
    for name, average in twin.named_parameters():
        torch.testing.assert_close(saved[name, AVERAGE], average.detach().flatten())
        assert not torch.equal(saved[name, AVERAGE], saved[name, MASTER])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_looking_at_the_average_changes_nothing_of_the_training(dtype: torch.dtype) -> None:
    alone, looked_at = (initialize(model(dtype), TRAINING, ALONE) for _ in range(2))
    train(alone, 0, 8)
    for step in range(8):
        train(looked_at, step, step + 1)
        before = state(looked_at)
        with judged(looked_at) as shown:
            seen = values(shown)
        assert equal(state(looked_at), before)
    assert not equal(seen, values(looked_at.weights))
    assert equal(state(looked_at), state(alone))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_run_that_goes_on_from_what_was_saved_is_the_undisturbed_one(dtype: torch.dtype) -> None:
    whole, first, second = (initialize(model(dtype), TRAINING, ALONE) for _ in range(3))
    train(whole, 0, 9)
    train(first, 0, 5)
    saved = state(first)
    parts = second.parts()
    for part in parts:
        part.values.copy_(saved[part.name, part.slot])
    second.restored(first.updates, parts)
    assert equal(values(second.weights), values(first.weights))
    train(second, 5, 9)
    assert equal(state(second), state(whole))
    assert second.updates == whole.updates == 9
