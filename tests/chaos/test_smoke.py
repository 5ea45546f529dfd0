"""A little chaos: the program runs, its nodes and kubelets play, and it finds nothing."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from oarlock_local.machine import why_no_control_plane

ROOT = Path(__file__).parents[2]


@pytest.mark.cluster
@pytest.mark.deep
def test_twelve_seconds_of_chaos_leave_nothing_behind() -> None:
    if reason := why_no_control_plane():
        pytest.skip(reason)
    # Whether a machine that tests other things at the same time is quick enough is no question here.
    command = [sys.executable, "-m", "tests.chaos", "--seed", "11", "--minutes", "0.2", "--patience", "200"]
    result = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout[-6000:] + result.stderr[-3000:]
    assert json.loads(result.stdout.splitlines()[-1])["violations"] == 0
    found = re.search(r"(\d+) steps, .* (\d+) attempts", result.stdout)
    assert found is not None
    assert min(map(int, found.groups())) > 5, "something was done"
