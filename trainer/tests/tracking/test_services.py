"""W&B and MLflow by their own packages: every attempt of a job goes on with one run."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import pytest
from mlflow_server import TOKEN, MlflowServer

from oarlock_trainer.tracking.mlflow_run import MlflowRun
from oarlock_trainer.tracking.tracker import RunFacts
from oarlock_trainer.tracking.wandb_run import WandbRun

if TYPE_CHECKING:
    from pathlib import Path

SETTINGS = {"seed": 1, "optimizer": {"name": "AdamW", "betas": [0.9, 0.999]}}


def facts(output: Path, **changes: Any) -> RunFacts:
    fields: dict[str, Any] = {
        "identity": "flux-0123", "project": "pictures", "name": "flux", "url": None, "secrets": {},
        "settings": SETTINGS, "output": output, "attempt": 1, "first": 0,
    }  # fmt: skip
    return RunFacts(**fields | changes)


@pytest.mark.deep
def test_wandb_without_a_network_keeps_one_run_of_all_attempts_below_the_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    key = "k" * 40
    for attempt in (1, 2):
        secrets = {"WANDB_API_KEY": key, "WANDB_ENTITY": "painters"}
        tracker = WandbRun(facts(tmp_path, attempt=attempt, secrets=secrets))
        tracker.log(attempt, {"loss": 0.5, "seconds/data": 0.25})
        tracker.close(done=attempt == 2)
        ended = int(time.time())
        while int(time.time()) == ended:  # W&B names folders by the second, and would write both into one file
            os.sched_yield()
    kept = [path.read_bytes() for path in tmp_path.glob("wandb/offline-run-*-flux-0123/run-flux-0123.wandb")]
    assert len(kept) == 2
    for content in kept:
        assert b"painters" in content
        assert b"pictures" in content
        assert b"seconds/data" in content
        assert key.encode() not in content


def test_mlflow_finds_the_run_of_the_attempt_before_by_its_tag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "")  # so that the test's end takes away what the tracker sets
    with MlflowServer() as server:
        given = {"url": server.url, "secrets": {"MLFLOW_TRACKING_TOKEN": TOKEN}}
        other = MlflowRun(facts(tmp_path, identity="flux-4567", **given))
        for attempt in (1, 2):
            tracker = MlflowRun(facts(tmp_path, attempt=attempt, **given))
            tracker.log(attempt, {"loss": 0.5 * attempt})
            tracker.close(done=attempt == 2)
        other.close(done=False)
    assert server.experiments == {"pictures": "1"}
    unfinished, run = server.runs
    assert (unfinished["info"]["status"], run["info"]["status"]) == ("RUNNING", "FINISHED")
    assert [(one["key"], one["value"], one["step"]) for one in run["data"]["metrics"]] == [
        ("loss", 0.5, 1),
        ("loss", 1.0, 2),
    ]
    assert {one["key"]: one["value"] for one in run["data"]["params"]} == {
        "seed": "1",
        "optimizer.name": "AdamW",
        "optimizer.betas": "[0.9, 0.999]",
    }
