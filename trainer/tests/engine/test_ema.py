"""The moving average of the weights: its formula, and that a run that was interrupted has the same one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import torch
from safetensors.torch import load_file

from oarlock_api.optimization import Ema
from oarlock_trainer.checkpoint.format import valid_checkpoints
from oarlock_trainer.checkpoint.layout import Layout
from oarlock_trainer.checkpoint.weights import Weights
from oarlock_trainer.engine.ema import decay

ROUNDING = 8e-5
"""Of weights that rates of 1e-3 have moved: what other sums in bfloat16 make of them."""

if TYPE_CHECKING:
    from pathlib import Path

    from gang import Gang


def test_the_decay_rises_to_the_jobs() -> None:
    """Figures of diffusers 0.42.1's EMAModel(decay=0.9).get_decay."""
    wanted = {1: 0.0, 2: 2 / 11, 3: 3 / 12, 10: 10 / 19, 80: 80 / 89, 81: 0.9, 82: 0.9, 10_000: 0.9}
    assert {updates: decay(Ema(decay=0.9), updates) for updates in wanted} == pytest.approx(wanted)


def test_an_interval_leaves_the_average_alone_in_between() -> None:
    assert [decay(Ema(decay=0.9, every_steps=3), updates) for updates in range(1, 8)] == [
        None, None, 0.0, None, None, pytest.approx(2 / 11), None,
    ]  # fmt: skip


def difference(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    """Mean over all weights."""
    gaps = [(one[name].float() - other[name].float()).abs().flatten() for name in other]
    return float(torch.cat(gaps).mean())


def averaged(gang: Gang, output: Path, *cuts: tuple[int, int], **fields: Any) -> dict[str, torch.Tensor]:
    """The exported weights of a run of (steps, ranks) after (steps, ranks)."""
    for attempt, (steps, ranks) in enumerate(cuts, start=1):
        settings = {
            "ema": {"decay": 0.6},
            "optimizer": {"learningRate": 1e-3},
            "checkpoint": {},
            "batchSize": 4 // ranks,
        }
        run = gang.run(output, gang.training(steps=steps, **(settings | fields)), ranks=ranks, attempt=attempt)
        assert run.codes == dict.fromkeys(range(ranks), 0), gang.log()
    return load_file(output / "model/transformer/diffusion_pytorch_model.safetensors")


def test_the_average_is_exported_and_goes_on_after_a_restart_with_other_ranks(gang: Gang, tmp_path: Path) -> None:
    whole = averaged(gang, tmp_path / "whole", (6, 2))
    cut = averaged(gang, tmp_path / "cut", (3, 2), (6, 1))
    found = valid_checkpoints(tmp_path / "whole")[0]
    masters = Weights(found)
    masters._slot = "master"
    assert difference(cut, whole) < ROUNDING
    weights = {name: masters.read(name, value.shape) for name, value in whole.items()}
    assert difference(weights, whole) > 2 * ROUNDING  # it is not the weights themselves
    assert {slot for _, slot in Layout(found.manifest.runs).slots} == {"master", "exp_avg", "exp_avg_sq", "ema"}


def test_an_average_that_comes_later_is_refused_and_says_so(gang: Gang, tmp_path: Path) -> None:
    assert gang.run(tmp_path, gang.training(steps=1, checkpoint={})).codes == {0: 0, 1: 0}, gang.log()
    run = gang.run(tmp_path, gang.training(steps=2, checkpoint={}, ema={"decay": 0.9}), attempt=2)
    assert set(run.codes.values()) == {85}
    assert "Set optimizer.name and ema as they were" in run.failure
    assert json.loads((tmp_path / "checkpoints/step-1-a1/manifest.json").read_text())["step"] == 1


@pytest.mark.deep
@pytest.mark.parametrize("engine", [{"strategy": "DDP"}, {"strategy": "DeepSpeed", "zeroStage": 3}])
def test_every_engine_keeps_the_same_average(gang: Gang, tmp_path: Path, engine: dict[str, Any]) -> None:
    reference = averaged(gang, tmp_path / "stage-1", (4, 2))
    other = averaged(gang, tmp_path / "other", (4, 2), engine=engine)
    assert difference(other, reference) < ROUNDING
