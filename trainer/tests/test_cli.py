"""The command `oarlock-trainer`."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from oarlock_trainer.cli import main

if TYPE_CHECKING:
    from pathlib import Path

COMMANDS = (
    "agent", "train", "check-storage", "check-gpus", "plan", "preprocess", "import-simpletuner", "export-agent",
    "make-tiny-flux", "make-photographs",
)  # fmt: skip


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["--help"])
    assert left.value.code == 0
    said = capsys.readouterr().out
    assert [name for name in COMMANDS if name not in said] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main([command, "--help"])
    assert left.value.code == 0
    assert len(capsys.readouterr().out.splitlines()) > 3


def test_without_a_command_it_ends_with_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main([])
    assert left.value.code == 2
    assert "COMMAND" in capsys.readouterr().err


def test_check_storage_ends_with_0_where_there_is_room(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check-storage", str(tmp_path), "--min-free", "1"]) == 0
    assert "is writable" in capsys.readouterr().out


def test_check_storage_ends_with_84_where_there_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check-storage", str(tmp_path), "--min-free", str(2**60)]) == 84
    assert "missing" in capsys.readouterr().out


def test_train_refuses_a_job_file_that_it_does_not_understand(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OARLOCK_CONFIG", "MACHINE_RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "")  # restored afterwards, whatever the command sets
    job = tmp_path / "job.json"
    job.write_text('{"version": 99}')
    assert main(["train", str(job)]) == 85
    assert "version 99" in capsys.readouterr().err


def test_make_tiny_flux_says_nothing_and_others_can_read_what_it_wrote(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "oarlock_trainer", "make-tiny-flux", str(tmp_path / "flux")]
    environment = {key: value for key, value in os.environ.items() if key != "DS_ACCELERATOR"}
    made = subprocess.run(command, check=True, capture_output=True, text=True, env=environment, umask=0o022)
    assert made.stdout + made.stderr == ""
    modes = {path.stat().st_mode & 0o777 for path in tmp_path.rglob("*") if path.is_file()}
    assert modes == {0o644}
