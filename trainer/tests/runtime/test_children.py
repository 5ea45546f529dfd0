"""Which processes the agent takes for its own and which for the job's.

Each runs in a process of its own: this one has other children, such as the ranks of other tests, which are to live on.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

from agent_process import lives

from oarlock_local import patience
from oarlock_trainer.runtime import children

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pytest


def holds_alone(promise: Callable[[], None]) -> None:
    """Run it as an agent without other children."""
    agent = multiprocessing.get_context("fork").Process(target=promise)
    agent.start()
    agent.join(patience.SECONDS)
    assert agent.exitcode == 0


@contextmanager
def helper() -> Iterator[int]:
    pid = children.spawn(["/bin/sleep", "60"], environment={})
    yield pid
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def _only_the_command_hears_the_signal() -> None:
    with helper() as own, subprocess.Popen(["/bin/sleep", "60"], start_new_session=True) as command:
        assert children.others_live()
        children.signal_others(signal.SIGTERM)
        assert command.wait() == -signal.SIGTERM
        assert lives(own)


def _only_a_helper_lives() -> None:
    with helper() as own:
        assert lives(own)
        assert not children.others_live()


def _a_command_has_ended() -> None:
    with subprocess.Popen(["/bin/true"], start_new_session=True) as command:
        os.waitid(os.P_PID, command.pid, os.WEXITED | os.WNOWAIT)
        assert not children.others_live()


def test_what_the_agent_runs_for_itself_hears_no_signal_of_the_jobs() -> None:
    holds_alone(_only_the_command_hears_the_signal)


def test_the_agents_own_helpers_hold_no_job() -> None:
    holds_alone(_only_a_helper_lives)


def test_a_command_that_is_not_reaped_yet_does_not_live() -> None:
    holds_alone(_a_command_has_ended)


def test_none_is_left_only_where_a_second_look_finds_none_either(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process may be born while the first look is on its way, of a parent that ends meanwhile."""
    born = children._Process(pid=2**30, parent=os.getpid(), session=2**30, part=False, lives=True)
    looks = iter([[], [born], [born], [], []])
    monkeypatch.setattr(children, "_processes", lambda: next(looks))
    assert [children.kill_others() for _ in range(3)] == [False, False, True]
