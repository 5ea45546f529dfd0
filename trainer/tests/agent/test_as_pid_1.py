"""The agent as PID 1 of a PID namespace, as it is in a container."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import own_program
import pytest
from agent_process import SETTLES_SOON, lives

from oarlock_local.patience import eventually

if TYPE_CHECKING:
    from agent_process import Agent

TOLD_TO_LEAVE_AT_ONCE = """
import os, signal, sys
class Kubelet:
    def find_spec(self, name, *_):
        if name == "oarlock_trainer.agent.parts":
            os.kill(os.getpid(), signal.SIGTERM)
sys.meta_path.insert(0, Kubelet())
"""
LAUNCHER = ("unshare", "--pid", "--fork", "--kill-child=SIGKILL", "--mount-proc")


@pytest.fixture
def contained(agent: Agent) -> Agent:
    if subprocess.run([*LAUNCHER, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine gives us no PID namespace: needs root and namespaces")
    agent.launcher = LAUNCHER
    return agent


def outer_pid(parent: int) -> int:
    """The agent's pid as we see it: the only child of unshare."""

    def find() -> int | None:
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                name, _, rest = stat.read_text().rpartition(")")
            except OSError:
                continue
            if rest.split()[1] == str(parent):
                return int(name.split()[0])
        return None

    return int(eventually(find, "unshare's child"))


def test_pid_1_heeds_sigterm_and_lets_the_ranks_save(contained: Agent) -> None:
    contained.start("saves_when_asked")
    assert contained.rank_pid(0) > 1
    contained.rank_pid(1)
    os.kill(outer_pid(contained.pid), signal.SIGTERM)
    assert contained.wait() == 86
    assert (contained.scratch / "saved-0").exists()


def test_pid_1_heeds_a_sigterm_that_comes_while_it_still_imports_itself(contained: Agent, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(TOLD_TO_LEAVE_AT_ONCE)
    contained.environment["PYTHONPATH"] += f":{tmp_path}"
    contained.start("saves_when_asked")
    assert contained.wait() == 86
    assert "before the ranks started" in contained.report()["summary"]


def test_pid_1_asks_a_rank_in_a_session_of_its_own_and_waits_for_it(contained: Agent, bundle: Path) -> None:
    contained.job["preflight"]["storage"] = False
    launcher = "launches_one_that_saves_in_another_session"
    contained.start_bundled(bundle, [sys.executable, own_program.__file__, launcher])
    contained.awaited("running")
    os.kill(outer_pid(contained.pid), signal.SIGTERM)
    contained.awaited("saving")
    contained.mark("storage-is-back")
    assert contained.wait() == 86
    assert (contained.scratch / "saved").exists()


def test_pid_1_reaps_orphans(contained: Agent) -> None:
    contained.start("leaves_processes_behind")
    contained.rank_pid(0), contained.rank_pid(1)
    pid = outer_pid(contained.pid)
    contained.awaited("orphan-short")
    contained.awaited("orphan-long")
    eventually(lambda: not zombies_of(pid), "no zombie is left")
    assert lives(pid)
    contained.mark("finish")
    assert contained.wait() == 0


def test_a_killed_rank_is_reported_by_pid_1_with_its_signal(contained: Agent) -> None:
    contained.altered |= SETTLES_SOON
    contained.start("first_rank_is_killed")
    assert contained.wait() == 128 + signal.SIGKILL
    assert contained.report()["firstErrorRank"] == 0


def zombies_of(parent: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = stat.read_text().rpartition(")")
        except OSError:
            continue
        state, father = rest.split()[:2]
        if state == "Z" and father == str(parent):
            found.append(int(name.split()[0]))
    return found
