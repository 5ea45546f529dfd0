"""Ending a process of ours."""

import subprocess
from pathlib import Path

import pytest

from oarlock_local.processes import start_logged, stop

READY = "echo ready; while :; do sleep 0.05; done"


@pytest.mark.parametrize(
    ("program", "seconds", "code"),
    [
        pytest.param(f"trap 'exit 3' TERM; {READY}", 60, 3, id="one that ends when it is asked to"),
        pytest.param(f"trap '' TERM; {READY}", 0.5, -9, id="one that does not"),
    ],
)
def test_a_process_is_asked_to_end_and_killed_where_it_does_not(
    program: str, seconds: float, code: int, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    process: subprocess.Popen[bytes] = start_logged(["sh", "-c", program], log)
    while not log.read_text():
        assert process.poll() is None
    stop(process, seconds=seconds)
    assert process.returncode == code
