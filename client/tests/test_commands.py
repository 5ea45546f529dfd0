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
