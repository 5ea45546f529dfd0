"""The command `oarlock-trainer`."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from oarlock_local import patience
from oarlock_trainer.cli import main

if TYPE_CHECKING:
    from pathlib import Path

COMMANDS = (
    "agent", "train", "check-storage", "check-gpus", "plan", "preprocess", "export-agent",
    "make-tiny-flux", "make-photographs", "checkpoints", "import-single-file",
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


def test_the_importer_where_it_is_not_installed_is_named_with_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: ())
    with pytest.raises(SystemExit) as left:
        main(["import-simpletuner", "config.json"])
    assert left.value.code == 2
    assert "pip install 'oarlock-trainer[import]'" in capsys.readouterr().err


def test_check_storage_ends_with_0_where_there_is_room(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check-storage", str(tmp_path), "--min-free", "1"]) == 0
    assert "is writable" in capsys.readouterr().out


def test_check_storage_ends_with_84_where_there_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check-storage", str(tmp_path), "--min-free", str(2**60)]) == 84
    assert "missing" in capsys.readouterr().out


def test_make_photographs_says_in_one_line_what_it_wrote(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["make-photographs", str(tmp_path / "photos")]) == 0
    assert capsys.readouterr().out == f"wrote 24 photographs, each with a caption, to {tmp_path}/photos\n"
    assert len(list(tmp_path.glob("photos/*.png"))) == len(list(tmp_path.glob("photos/*.txt"))) == 24


def test_train_refuses_a_job_file_that_it_does_not_understand(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OARLOCK_CONFIG", "MACHINE_RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "")  # restored afterwards, whatever the command sets
    job = tmp_path / "job.json"
    job.write_text('{"version": 99}')
    assert main(["train", str(job)]) == 85
    assert "version 99" in capsys.readouterr().err


def test_a_reader_that_has_seen_enough_is_no_error(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "oarlock_trainer", "check-storage", str(tmp_path), "--min-free", "1"]
    ended = subprocess.run(
        command, check=False, stdout=writing, stderr=subprocess.PIPE, text=True, timeout=patience.SECONDS
    )
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (141, "")


def test_another_pipe_that_breaks_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def broken(*_: object, **__: object) -> None:
        raise BrokenPipeError("a rank's")

    monkeypatch.setattr("oarlock_trainer.commands.plan.run", broken)
    with pytest.raises(BrokenPipeError, match="a rank's"):
        main(["plan", "-f", str(tmp_path / "job.yaml")])
