"""Lines that survive a crash."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from oarlock_api.contract.figures import Figures
from oarlock_api.contract.status import StepPart
from oarlock_trainer.loop.metrics import Metrics
from oarlock_trainer.loop.step_clock import Split
from oarlock_trainer.runtime import channel, clock

if TYPE_CHECKING:
    from collections.abc import Mapping


PARTS = dict.fromkeys(StepPart, 0.0) | {StepPart.DATA: 0.5, StepPart.FORWARD: 1.5}


def tell(metrics: Metrics, step: int, loss: float = 0.5) -> None:
    figures = Figures(step=step, loss=loss, seconds_per_step=2.0, skipped_updates=1, memory_peak_bytes=2**30)
    metrics.step(figures, parts=PARTS, by_noise={"0.2-0.4": 0.5})


def test_a_line_that_a_crash_cut_off_spoils_no_other(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"attempt":1,"step":1}\n{"attempt":1,"ste')
    metrics = Metrics(tmp_path, 2)
    tell(metrics, 2)
    metrics.close()
    lines = path.read_text().splitlines()
    assert json.loads(lines[0])["step"] == 1
    assert json.loads(lines[-1])["attempt"] == 2


def test_rates_follow_from_the_seconds() -> None:
    split = Split(2.0, PARTS)
    assert (split.per_second(8), split.share(StepPart.DATA)) == (4.0, 0.25)
    unmoved = Split(0.0, PARTS)
    assert (unmoved.per_second(8), unmoved.share(StepPart.DATA)) == (None, None)


def test_a_line_holds_what_a_step_s_seconds_were_spent_on(tmp_path: Path) -> None:
    metrics = Metrics(tmp_path, 1)
    tell(metrics, 1)
    metrics.close()
    line = json.loads((tmp_path / "metrics.jsonl").read_text())
    assert set(line["seconds"]) == set(StepPart)
    assert sum(line["seconds"].values()) == line["secondsPerStep"] == 2.0
    assert (line["skippedUpdates"], line["memoryPeakBytes"]) == (1, 2**30)


def test_a_line_says_when_it_was_written(tmp_path: Path) -> None:
    before = clock.timestamp()
    metrics = Metrics(tmp_path, 1)
    tell(metrics, 1)
    metrics.close()
    line = json.loads((tmp_path / "metrics.jsonl").read_text())
    assert before <= line["time"] <= clock.timestamp()


def test_trackers_get_every_figure_that_is_known_by_one_name_each(tmp_path: Path) -> None:
    told: list[tuple[int, dict[str, float]]] = []

    class Heard:
        def report(self, step: int, figures: Mapping[str, float]) -> None:
            told.append((step, dict(figures)))

    metrics = Metrics(tmp_path, 1, Heard())
    tell(metrics, 1, loss=float("inf"))
    metrics.evaluation(1, {"unseen": 0.25, "empty": float("nan")})
    metrics.close()
    (_, figures), evaluated = told
    assert figures["seconds/forward"] == 1.5
    assert figures["lossByNoise/0.2-0.4"] == 0.5
    assert {"loss", "mfu"}.isdisjoint(figures)
    assert evaluated == (1, {"evaluationLoss/unseen": 0.25})


def test_a_full_disk_is_told_once_each_time_that_it_fills(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    monkeypatch.setenv(channel.AGENT_FD, str(writing))
    (tmp_path / "metrics.jsonl").symlink_to("/dev/full")
    metrics = Metrics(tmp_path, 1)
    with (tmp_path / "room").open("ab") as room, Path("/dev/full").open("ab") as full:
        for step, disk in enumerate((full, full, full, room, room, full, full), start=1):
            os.dup2(disk.fileno(), metrics._file.fileno())
            tell(metrics, step)
    metrics.close()
    os.close(writing)
    with os.fdopen(reading, "rb") as told:
        events = [message for line in told if (message := channel.decode(line))]
    assert [one.event for one in events] == ["step", "note", "step", "step", "step", "step", "step", "note", "step"]
    assert len((tmp_path / "room").read_bytes().splitlines()) == 2


def test_a_loss_that_is_not_finite_is_null(tmp_path: Path) -> None:
    metrics = Metrics(tmp_path, 1)
    tell(metrics, 1, loss=float("nan"))
    metrics.close()
    assert json.loads((tmp_path / "metrics.jsonl").read_text())["loss"] is None
