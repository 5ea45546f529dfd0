"""`oarlock why` on an output alone: for people, for programs, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from situations import HUNG, line

from oarlock.cli.main import run
from oarlock.exit_codes import ExitCode


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    history = tmp_path / "flux/.oarlock/history"
    history.mkdir(parents=True)
    told = line("Fault", rank=1, node="node-2", reason="Hang", message=HUNG, data={"code": 83})
    (history / "story.jsonl").write_text(json.dumps(told) + "\n")
    return tmp_path / "flux"


def test_no_cluster_is_needed(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere")
    assert run(["why", "--path", str(folder)]) == ExitCode.DONE
    said = capsys.readouterr().out
    assert "Now       Hang: attempt 1 ended" in said
    assert said.startswith("flux: Gone\n")


def test_programs_get_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["why", "--path", str(folder), "-o", "json"]) == ExitCode.DONE
    said = json.loads(capsys.readouterr().out)
    assert (said["version"], said["trouble"]["cause"], said["trouble"]["node"]) == (1, "Hang", "node-2")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["why", "--path", "/nowhere"], ExitCode.NOT_FOUND),
        (["why"], ExitCode.USAGE),
        (["why", "--path", "/nowhere", "-o", "csv"], ExitCode.USAGE),
    ],
)
def test_what_cannot_be_is_one_line_and_an_exit_code(
    arguments: list[str], code: ExitCode, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == code
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
