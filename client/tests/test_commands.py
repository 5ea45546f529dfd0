import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("program", ["oarlock", "kubectl-oarlock"])
def test_both_names_of_the_command_tell_the_version(program: str) -> None:
    path = Path(sys.executable).with_name(program)
    told = subprocess.run([path, "--version"], check=True, capture_output=True, text=True)
    assert told.stdout == f"oarlock {importlib.metadata.version('oarlock')}\n"


def test_what_the_trainer_does_is_found_beside_this_command_where_nothing_of_it_is_on_the_path() -> None:
    path = Path(sys.executable).with_name("oarlock")
    told = subprocess.run(
        [path, "plan", "--help"], check=False, capture_output=True, text=True, env={"PATH": "/usr/bin:/bin"}
    )
    assert told.returncode == 0, told.stderr
    assert "usage: oarlock-trainer plan" in told.stdout
