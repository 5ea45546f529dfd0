"""DeepSpeed's two Lions, with operators in torch for the compiled ones: what they keep, and how they go on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from oarlock_api.optimization import Optimizer as Settings
from oarlock_local.pytest_tiers import quick_first
from oarlock_trainer.engine import lion
from oarlock_trainer.engine.optimizers import make_offloaded, make_optimizer
from oarlock_trainer.engine.slots import set_updates, slots, updates
from oarlock_trainer.runtime.errors import ConfigurationError

if TYPE_CHECKING:
    from torch import Tensor

SIZE = 1000


class Operators:
    """Stands for both compiled operators: their published formulas, in torch."""

    def create_lion(self, *_: Any) -> None:
        """Nothing is kept outside of the tensors."""

    def destroy_lion(self, *_: Any) -> None:
        """Nothing to free."""

    def lion_update(self, _number: int, _step: int, *given: Any) -> None:
        rate, first, second, decay, weights, gradient, moment = given
        direction = first * moment + (1 - first) * gradient
        weights.mul_(1 - rate * decay).sub_(torch.where(direction > 0, rate, -rate))
        moment.mul_(second).add_(gradient, alpha=1 - second)

    def multi_tensor_lion(self, _chunk: int, _flag: Tensor, tensors: list[list[Tensor]], *numbers: float) -> None:
        rate, first, second, _step, decay = numbers
        for gradient, weights, moment in zip(*tensors, strict=True):
            self.lion_update(0, 0, rate, first, second, decay, weights, gradient, moment)


class Builder:
    """Stands for DeepSpeed's builders."""

    def load(self) -> Operators:
        """No compiler runs."""
        return Operators()


@pytest.fixture(autouse=True)
def operators(monkeypatch: pytest.MonkeyPatch) -> None:
    from deepspeed.ops.lion import cpu_lion, fused_lion  # noqa: PLC0415 - its import takes seconds

    monkeypatch.setattr(cpu_lion, "CPULionBuilder", Builder)
    monkeypatch.setattr(fused_lion, "FusedLionBuilder", Builder)


def made(way: str, shard: Tensor) -> torch.optim.Optimizer:
    fields = {"name": "Lion", "learningRate": 1e-2, "betas": [0.8, 0.9], "weightDecay": 0.1}
    if way == "offloaded":
        return make_offloaded([shard], Settings.model_validate(fields))
    return make_optimizer([shard], Settings.model_validate(fields | {"options": {"fused": way == "fused"}}))


def start() -> Tensor:
    return torch.randn(SIZE, generator=torch.Generator().manual_seed(2))


def update(shard: Tensor, optimizer: torch.optim.Optimizer, *, seed: int, times: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for _ in range(times):
        shard.grad = torch.randn(SIZE, generator=generator)
        optimizer.step()


@pytest.mark.parametrize("way", ["offloaded", "fused"])
def test_deepspeeds_lions_get_the_jobs_numbers_and_train_as_ours_does(way: str) -> None:
    shard, own = start(), start()
    update(shard, made(way, shard), seed=1, times=5)
    update(own, made("ours", own), seed=1, times=5)
    torch.testing.assert_close(shard, own)


@pytest.mark.deep
@pytest.mark.parametrize("way", ["offloaded", "fused"])
def test_no_second_moment_is_kept_for_nothing(way: str) -> None:
    shard = start()
    optimizer = made(way, shard)
    update(shard, optimizer, seed=1, times=1)
    assert set(optimizer.state[shard]) == {"step", "exp_avg"}


@pytest.mark.parametrize("before", quick_first(["ours", "offloaded", "fused"]))
@pytest.mark.parametrize("after", quick_first(["offloaded", "fused", "ours"]))
def test_each_lion_goes_on_from_what_any_other_saved(before: str, after: str) -> None:
    shard = start()
    optimizer = made(before, shard)
    update(shard, optimizer, seed=1, times=3)
    moved = shard.clone()
    other = made(after, moved)
    slots(other, moved)["exp_avg"].write(0, slots(optimizer, shard)["exp_avg"].read(0, SIZE).clone())
    set_updates(other, moved, updates(optimizer, shard))
    update(shard, optimizer, seed=4, times=3)
    update(moved, other, seed=4, times=3)
    torch.testing.assert_close(moved, shard)
    assert updates(other, moved) == updates(optimizer, shard) == 6


def test_a_share_that_the_fused_kernel_cannot_count_ends_before_an_update(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lion, "_FUSED_ELEMENTS", SIZE - 1)
    shard = start()
    with pytest.raises(ConfigurationError, match=r"options.fused: a GPU's share has 1000 elements.*use more GPUs"):
        update(shard, made("fused", shard), seed=1, times=1)
    assert torch.equal(shard, start())
