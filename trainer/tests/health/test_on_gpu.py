"""The monitor on a real GPU, as the user that training runs as: what the driver gives, and what a program's fault is."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from oarlock_api.contract.health import GpuVerdict
from oarlock_local import patience
from oarlock_trainer.health import messages
from oarlock_trainer.health.messages import Line, News

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.gpu

_OUT_OF_BOUNDS = """
import torch, triton, triton.language as tl

@triton.jit
def store(pointer):
    tl.store(pointer + (1 << 44), 1.0)

store[(1,)](torch.zeros(1, device="cuda"))
torch.cuda.synchronize()
"""
"""Writes sixteen tebibytes beyond its memory: the driver ends the context with XID 31 or 13, and the GPU goes on."""


@pytest.fixture
def count() -> int:
    import pynvml  # noqa: PLC0415

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        pytest.skip(f"no GPU: {error}")
    found: int = pynvml.nvmlDeviceGetCount()
    pynvml.nvmlShutdown()
    return found


@pytest.fixture
def lines(count: int) -> Iterator[Callable[[Callable[[Line], bool]], Line]]:
    """Waits for a line of a monitor that runs as nobody, where we may."""
    readable, writable = os.pipe()
    command = [sys.executable, "-m", "oarlock_trainer.health.monitor", "--told", str(writable)]
    command += ["--parent", str(os.getpid()), "--expected", str(count)]
    user = 65534 if os.getuid() == 0 else None
    try:
        process = subprocess.Popen(command, pass_fds=[writable], user=user)
    except PermissionError:
        pytest.skip(f"nobody but root may run {sys.executable} here: the monitor can't be tried as in a pod")
    pending = b""

    def until(fits: Callable[[Line], bool]) -> Line:
        nonlocal pending
        deadline = time.monotonic() + patience.SECONDS
        while (left := deadline - time.monotonic()) > 0:
            line, newline, rest = pending.partition(b"\n")
            if newline:
                pending = rest
                if (said := messages.decode(line)) and fits(said):
                    return said
            elif select.select([readable], [], [], left)[0]:
                pending += os.read(readable, 65536)
        raise AssertionError("the monitor did not tell it in time")

    yield until
    process.kill()
    process.wait()


def test_the_driver_tells_of_xids_and_its_recovery_action_to_whoever_is_not_root(
    lines: Callable[[Callable[[Line], bool]], Line],
) -> None:
    probes = dict(lines(lambda line: line.news is News.COVERAGE).probes)
    assert probes["xid"]
    assert probes["recoveryAction"]
    assert probes["ecc"]


def test_a_program_that_writes_where_it_may_not_restarts_processes_and_takes_no_node(
    lines: Callable[[Callable[[Line], bool]], Line],
) -> None:
    lines(lambda line: line.news is News.BEAT)
    done = subprocess.run([sys.executable, "-c", _OUT_OF_BOUNDS], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    symptom = lines(lambda line: line.news is News.SYMPTOM).symptom
    assert symptom is not None
    assert symptom.xid in (13, 31)
    assert symptom.verdict is GpuVerdict.RESTART_PROCESS
