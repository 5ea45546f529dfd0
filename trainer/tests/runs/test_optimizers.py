"""Real runs with the optimizers whose whole state is on each rank: stopped, resumed, with other ranks, exported."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
from safetensors.torch import load_file

from oarlock_trainer.checkpoint.format import valid_checkpoints
from oarlock_trainer.checkpoint.layout import Layout
from oarlock_trainer.checkpoint.weights import Weights

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gang import Gang

pytestmark = pytest.mark.deep

STEPS = 8
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "Prodigy": {"learningRate": 1.0, "options": {"d0": 1e-4, "safeguardWarmup": True}, "schedule": {"warmupSteps": 2}},
    "AdamWBF16": {"learningRate": 1e-3},
    "AdamWScheduleFree": {"learningRate": 1e-3, "schedule": {"warmupSteps": 2}},
}
SLOTS = {
    "Prodigy": {"master", "exp_avg", "exp_avg_sq", "s", "p0", "d", "d_numerator"},
    "AdamWBF16": {"master", "exp_avg", "exp_avg_sq"},
    "AdamWScheduleFree": {"master", "z", "exp_avg_sq", "ema", "weight_sum", "lr_max"},
}
WAYS = {"LoRA": {"method": "LoRA", "lora": {"rank": 4}}, "Full": {"engine": {"strategy": "DDP"}}}


def training(gang: Gang, name: str, way: str = "LoRA", **fields: Any) -> dict[str, Any]:
    judged = {"name": "judged", "source": {"path": str(gang.pictures)}, "role": "Evaluation", "maxSamples": 2}
    judged |= {"size": {"minimum": 65}}
    datasets = [*gang.data()["datasets"], judged]
    optimizer = {"name": name, "weightDecayOn": "Matrices"} | OPTIMIZERS[name]
    settings = {"steps": STEPS, "checkpoint": {"intervalSteps": 3}, "optimizer": optimizer, "batchSize": 2}
    return gang.training(**settings | {"data": gang.data(datasets=datasets)} | WAYS[way] | fields)


@dataclass(frozen=True)
class Whole:
    """A run that nothing disturbed."""

    output: Path
    losses: dict[int, float]


@pytest.fixture(scope="module")
def whole(gang: Gang, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Whole]:
    """One run for all tests of an optimizer and a way to train."""

    @cache
    def train(name: str, way: str = "LoRA") -> Whole:
        output = tmp_path_factory.mktemp("whole")
        run = gang.run(output, training(gang, name, way))
        assert run.codes == {0: 0, 1: 0}, gang.log()
        return Whole(output, run.losses)

    return train


CASES = [*((name, way) for name in ("Prodigy", "AdamWBF16") for way in WAYS), ("AdamWScheduleFree", "LoRA")]


@pytest.mark.parametrize(("name", "way"), CASES)
def test_a_run_that_was_asked_to_leave_goes_on_with_the_losses_that_it_would_have_had(
    gang: Gang, whole: Callable[..., Whole], tmp_path: Path, name: str, way: str
) -> None:
    def leave(event: dict[str, Any]) -> None:
        if event["event"] == "step" and event["step"] == 4:
            gang.ask_to_leave()

    gang.run(tmp_path / "left", training(gang, name, way), on_event=leave)
    resumed = gang.run(tmp_path / "left", training(gang, name, way), attempt=2)
    assert resumed.codes == {0: 0, 1: 0}, gang.log()
    assert 0 < len(resumed.losses) < STEPS
    assert resumed.losses == {step: whole(name, way).losses[step] for step in resumed.losses}
    found = valid_checkpoints(tmp_path / "left")[0]
    assert {slot for _, slot in Layout(found.manifest.runs).slots} == SLOTS[name]


def test_the_rate_that_is_told_is_the_one_that_prodigy_found(whole: Callable[..., Whole]) -> None:
    lines = map(json.loads, (whole("Prodigy").output / "metrics.jsonl").read_text().splitlines())
    rates = [line["learningRate"] for line in lines if "loss" in line]
    assert rates[0] == 0.0  # the warm-up begins
    assert 1e-4 <= rates[2] <= rates[-1] < 0.1  # from d0 on; the schedule says 1


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_run_goes_on_with_another_number_of_ranks(
    gang: Gang, whole: Callable[..., Whole], tmp_path: Path, name: str
) -> None:
    losses: dict[int, float] = {}
    for attempt, (steps, ranks) in enumerate([(3, 2), (6, 1), (STEPS, 2)], start=1):
        fields = {"steps": steps, "batchSize": 4 // ranks}
        run = gang.run(tmp_path / "cut", training(gang, name, **fields), ranks=ranks, attempt=attempt)
        assert run.codes == dict.fromkeys(range(ranks), 0), gang.log()
        losses |= run.losses
    assert losses == pytest.approx(whole(name).losses, rel=5e-3)


def test_of_a_schedule_free_run_the_average_is_exported(whole: Callable[..., Whole]) -> None:
    output = whole("AdamWScheduleFree", "Full").output
    exported = load_file(output / "model/transformer/diffusion_pytorch_model.safetensors")
    weights = Weights(valid_checkpoints(output)[0])
    trained = Weights(valid_checkpoints(output)[0])
    trained._slot = "master"
    assert weights._slot == "ema"
    apart = 0
    for name, value in exported.items():
        assert value.equal(weights.read(name, value.shape).bfloat16())
        apart += int(not value.equal(trained.read(name, value.shape).bfloat16()))
    assert apart > len(exported) / 2
