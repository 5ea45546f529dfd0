"""A short soak: the program runs, faults are done and mended, and it finds nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from oarlock_local.machine import why_no_nodes

ROOT = Path(__file__).parents[2]


@pytest.mark.nodes
@pytest.mark.timeout(1500)
def test_faults_of_six_kinds_leave_the_curve_and_the_model_as_they_were() -> None:
    if reason := why_no_nodes():
        pytest.skip(reason)
    kinds = ["rank-killed", "agent-killed", "xid-94", "operator-killed", "rank-hangs", "xid-79"]
    command = [sys.executable, "-m", "tests.soak", "--faults", "6", "--kinds", *kinds]
    command += ["--seed", "3", "--steps", "150", "--gap", "3"]
    # Whether a machine that tests other things at the same time is quick enough is no question here.
    result = subprocess.run([*command, "--bound", "400"], cwd=ROOT, check=False, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout[-6000:] + result.stderr[-3000:]
    told = json.loads(result.stdout.splitlines()[-1])
    assert (told["faults"], told["violations"]) == (6, 0)
