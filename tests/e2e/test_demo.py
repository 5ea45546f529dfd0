"""The demo clears up after itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from oarlock_local.build import binaries
from oarlock_local.folders import ClusterFolder
from oarlock_local.machine import why_no_nodes
from oarlock_local.teardown import lock_or_refuse

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.nodes


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_in_the_middle_of_the_demo_leaves_nothing(tmp_path: Path) -> None:
    if reason := why_no_nodes():
        pytest.skip(reason)
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path), "PYTHONUNBUFFERED": "1"}
    # A cluster's programs, and no others: what else the demo built would be missed here.
    environment["OARLOCK_LOCAL_BIN"] = str(binaries(nodes=True))
    command = [sys.executable, "-m", "oarlock_local.demo"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as demo:
        assert demo.stdout
        told = ""
        for line in demo.stdout:
            told += line
            if "Starting" in line:
                demo.send_signal(signal.SIGINT)
                break
        told += demo.stdout.read()
    assert demo.returncode in (130, -signal.SIGINT), told
    assert "everything is cleared away" in told
    assert not list((tmp_path / "oarlock/clusters").glob("*"))
    left = subprocess.run(["pgrep", "-f", str(tmp_path)], capture_output=True, text=True, check=False).stdout
    assert left == ""


def test_a_second_demo_is_told_that_one_runs_and_how_to_end_it(tmp_path: Path) -> None:
    if reason := why_no_nodes():
        pytest.skip(reason)
    lock = lock_or_refuse(ClusterFolder.of("demo", tmp_path / "oarlock/clusters"))
    try:
        command = [sys.executable, "-m", "oarlock_local.demo"]
        environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
        demo = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    finally:
        os.close(lock)
    assert demo.returncode == 1
    assert "another demo runs on this machine" in demo.stderr
    assert "oarlock-local down demo" in demo.stderr
    assert "helm" not in demo.stderr
