"""Which processes the agent takes for its own and which for the job's."""

from __future__ import annotations

import os
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest
from agent_process import lives

from oarlock_trainer.agent import children

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def helper() -> Iterator[int]:
    pid = children.spawn(["/bin/sleep", "60"], environment={})
    yield pid
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def test_what_the_agent_runs_for_itself_hears_no_signal_of_the_jobs(helper: int) -> None:
    with subprocess.Popen(["/bin/sleep", "60"], start_new_session=True) as command:
        assert children.others_live()
        children.signal_others(signal.SIGTERM)
        assert command.wait() == -signal.SIGTERM
    assert lives(helper)


def test_the_agents_own_helpers_hold_no_job(helper: int) -> None:
    assert lives(helper)
    assert not children.others_live()


def test_a_command_that_is_not_reaped_yet_does_not_live() -> None:
    with subprocess.Popen(["/bin/true"], start_new_session=True) as command:
        os.waitid(os.P_PID, command.pid, os.WEXITED | os.WNOWAIT)
        assert not children.others_live()
