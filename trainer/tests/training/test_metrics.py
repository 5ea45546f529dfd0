"""Lines that survive a crash."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from oarlock_trainer.metrics import Metrics, StepFacts

if TYPE_CHECKING:
    from pathlib import Path


def facts(step: int, loss: float = 0.5) -> StepFacts:
    return StepFacts(
        step=step, total=9, epoch=0, loss=loss, learning_rate=1e-5, gradient_norm=1.0, seconds=2.0, data_seconds=0.5,
        images=8, mfu=None,
    )  # fmt: skip


def test_a_line_that_a_crash_cut_off_spoils_no_other(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"attempt":1,"step":1}\n{"attempt":1,"ste')
    metrics = Metrics(tmp_path, 2)
    metrics.step(facts(2))
    metrics.close()
    lines = path.read_text().splitlines()
    assert json.loads(lines[0])["step"] == 1
    assert json.loads(lines[-1])["attempt"] == 2


def test_rates_follow_from_the_seconds(tmp_path: Path) -> None:
    metrics = Metrics(tmp_path, 1)
    metrics.step(facts(1))
    metrics.close()
    line = json.loads((tmp_path / "metrics.jsonl").read_text())
    assert (line["imagesPerSecond"], line["dataWaitShare"]) == (4.0, 0.25)


def test_a_loss_that_is_not_finite_is_null(tmp_path: Path) -> None:
    metrics = Metrics(tmp_path, 1)
    metrics.step(facts(1, loss=float("nan")))
    metrics.close()
    assert json.loads((tmp_path / "metrics.jsonl").read_text())["loss"] is None
