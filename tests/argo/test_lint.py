"""The workflows of the examples, from YAML and from Hera, as Argo's own CLI checks them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.argo.workflows import WORKFLOW

HERA = ("argo_hera.py", "preprocess.yaml", "lora.yaml", "evaluate.yaml")


def linted(programs: Path, text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    path = folder / "workflow.yaml"
    path.write_text(text)
    command = [str(programs / "argo"), "lint", "--offline", "--no-color", str(path)]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def from_hera() -> str:
    command = [sys.executable, *HERA]
    return subprocess.run(command, cwd=WORKFLOW.parent, check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("written", [WORKFLOW.read_text, from_hera], ids=["YAML", "Hera"])
def test_argo_finds_nothing_wrong_with_the_workflow_of_an_example(
    written: Callable[[], str], programs: Path, tmp_path: Path
) -> None:
    done = linted(programs, written(), tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_argo_finds_an_output_that_no_step_has(programs: Path, tmp_path: Path) -> None:
    wrong = WORKFLOW.read_text().replace("steps.train.outputs.parameters.model", "steps.train.nothing")
    done = linted(programs, wrong, tmp_path)
    assert done.returncode == 1
    assert "failed to resolve {{steps.train.nothing}}" in done.stdout + done.stderr
