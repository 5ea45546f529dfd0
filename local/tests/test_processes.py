"""Ending a process of ours, and what one has computed."""

import subprocess
import sys
from pathlib import Path

import pytest

from oarlock_local.processes import cpu_seconds_below, start_logged, stop

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


COMPUTE = "import time\nwhile time.process_time() < 0.2: pass\nprint(flush=True); input()"


@pytest.mark.parametrize(
    ("command", "computes"),
    [
        pytest.param(["sh", "-c", 'echo | "$@" >/dev/null; echo; read end', "sh"], True, id="a child that ended"),
        pytest.param(["sh", "-c", '("$@"; :); :', "sh"], True, id="a child's child that runs"),
        pytest.param([], False, id="not the process itself"),
    ],
)
def test_what_is_below_a_process_computes(command: list[str], *, computes: bool) -> None:
    command = [*command, sys.executable, "-c", COMPUTE]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        # The kernel counts in hundredths and rounds down.
        assert (cpu_seconds_below(process.pid) > 0.15) == computes
        process.communicate(b"\n")
    assert cpu_seconds_below(process.pid) == 0
