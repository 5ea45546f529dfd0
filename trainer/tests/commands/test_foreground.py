"""`oarlock-trainer train` on one machine: Ctrl-C and SIGTERM save, and the same command goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from gang import losses_in

from oarlock_api.contract.exit_codes import ExitCode
from oarlock_local import patience

if TYPE_CHECKING:
    from gang import Gang

SUPPORT = Path(__file__).parents[1] / "support"


def job_file(folder: Path, training: dict[str, Any]) -> Path:
    body = {
        "version": 2, "job": "flux", "namespace": "default", "job_uid": "u", "attempt": 1, "nodes": 1,
        "gpus_per_node": 2, "output_directory": str(folder / "output"), "training": training,
    }  # fmt: skip
    path = folder / "job.json"
    path.write_text(json.dumps(body))
    return path


def start(job: Path, *program: str, **more: str) -> subprocess.Popen[str]:
    environment = os.environ | {
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
        "OARLOCK_SIMULATE_GPUS": "1",
        **more,
    }
    command = [sys.executable, "-m", "oarlock_trainer", "train", str(job), *program]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, env=environment | {"PYTHONPATH": str(SUPPORT)}, text=True, **pipes)  # type: ignore[call-overload,no-any-return]


@pytest.mark.deep
def test_ranks_that_are_asked_to_leave_save_and_the_same_command_trains_on_as_if_nothing_was(
    gang: Gang, tmp_path: Path
) -> None:
    training = gang.training(steps=6, checkpoint={})
    whole = gang.run(tmp_path / "whole", training)
    job = job_file(tmp_path, training)
    asked = start(job, "--program", "leaving_ranks:main")
    _, said = asked.communicate(timeout=patience.SECONDS)
    assert asked.returncode == 128 + signal.SIGTERM, said[-4000:]
    assert "the ranks save at the next step, and end; once more ends them at once" in said
    before = losses_in(tmp_path / "output")
    assert (2 in before, 6 in before) == (True, False)
    again = start(job)
    _, said = again.communicate(timeout=patience.SECONDS)
    assert again.returncode == 0, said[-4000:]
    assert said.endswith(f"done: what it made lies in {tmp_path / 'output'}\n")
    assert losses_in(tmp_path / "output") == whole.losses


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_asked_once_more_ranks_that_take_long_are_ended_at_once(tmp_path: Path, number: signal.Signals) -> None:
    trainer = start(job_file(tmp_path, {}), "--program", "stubborn_ranks:main")
    assert trainer.stdout
    assert trainer.stderr
    for words in ("ready", "saving"):
        assert {trainer.stdout.readline().strip() for _ in range(2)} == {f"{words} 0", f"{words} 1"}
        trainer.send_signal(number)
    assert trainer.wait(patience.SECONDS) == 128 + number
    said = trainer.stderr.read()
    assert "ended at once. The same command goes on from the newest checkpoint" in said


@pytest.mark.parametrize(
    ("ends_with", "code"),
    [
        pytest.param(0, 0, id="they came to their end"),
        pytest.param(ExitCode.STORAGE, ExitCode.STORAGE, id="they could not save"),
        pytest.param(ExitCode.LEFT_ON_REQUEST, 128 + signal.SIGTERM, id="they saved"),
    ],
)
def test_the_exit_code_tells_what_became_of_ranks_that_were_asked_to_leave(
    tmp_path: Path, ends_with: int, code: int
) -> None:
    trainer = start(job_file(tmp_path, {}), "--program", "ending_ranks:main", ENDS_WITH=str(int(ends_with)))
    assert trainer.stdout
    assert {trainer.stdout.readline().strip() for _ in range(2)} == {"ready 0", "ready 1"}
    trainer.send_signal(signal.SIGTERM)
    trainer.communicate(timeout=patience.SECONDS)
    assert trainer.returncode == code
