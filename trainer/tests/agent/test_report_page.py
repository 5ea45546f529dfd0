"""<output>/reports/index.html, as a real agent has it written: when, with what, and at nobody's cost."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from pythons import PYTHONS

from oarlock_api.contract.kept_spec import settings
from oarlock_api.contract.layout import REPORT_PAGE
from oarlock_api.contract.status import CheckpointStatus, PodStatus
from oarlock_local.patience import eventually
from oarlock_local.pytest_tiers import quick_first
from oarlock_trainer.agent.report import report_page
from oarlock_trainer.agent.report.report_page import ENDED, RUNNING, SUCCEEDED, ReportPage
from oarlock_trainer.agent.report.write import write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from agent_process import Agent

    from oarlock_trainer.runtime.assignment import Assignment


@pytest.fixture
def written(agent: Agent) -> Callable[[str], str]:
    agent.output.mkdir(parents=True)
    page = agent.output / REPORT_PAGE

    def with_(words: str) -> str:
        eventually(lambda: page.exists() and words in page.read_text(), f"{words}:\n{agent.log_path.read_text()}")
        return page.read_text()

    return with_


def test_a_job_that_trains_has_its_page_and_at_the_end_it_says_how_it_ended(
    agent: Agent, written: Callable[[str], str]
) -> None:
    agent.environment["OARLOCK_SPEC"] = settings({"training": {"steps": 300}})
    agent.start("trains_until_told")
    page = written("<title>default/flux: Running</title>")
    assert "attempt 3 trains on node-1" in page
    assert "training.steps" in page
    agent.mark("finish")
    assert agent.wait() == 0
    page = (agent.output / REPORT_PAGE).read_text()
    assert "<title>flux: Succeeded</title>" in page.replace("default/", "")
    assert "attempt 3 ended well" in page
    assert [path.name for path in (agent.output / "reports").iterdir()] == ["index.html"]


def test_what_a_failed_attempt_has_left_makes_a_page_that_tells_why(agent: Agent) -> None:
    """Its own agent gives the page a second, and nobody promises that on a machine as busy as this one."""
    agent.output.mkdir(parents=True)
    agent.start("prints_and_waits")
    os.kill(agent.rank_pid(1), signal.SIGKILL)
    assert agent.wait() == 137
    write(agent.output, phase=ENDED)
    page = (agent.output / REPORT_PAGE).read_text()
    assert "Ended</span>" in page
    assert "rank 1 was killed by SIGKILL" in page


@pytest.mark.parametrize("python", quick_first(PYTHONS))
def test_a_program_of_somebody_else_s_in_an_image_of_its_own_has_a_page_too(
    agent: Agent, python: Callable[[], Path], bundle: Path
) -> None:
    agent.output.mkdir(parents=True)
    agent.start_bundled(bundle, ["sh", "-c", "exit 0"], python=python())
    assert agent.wait() == 0
    page = (agent.output / REPORT_PAGE).read_text()
    assert "attempt 3 ended well" in page
    assert "<style>" in page


@pytest.mark.deep
def test_a_page_that_cannot_be_written_is_one_line_in_the_log(agent: Agent) -> None:
    agent.output.mkdir(parents=True)
    (agent.output / "reports").write_text("no folder")
    agent.start("leaves_its_environment")
    assert agent.wait() == 0
    (said,) = [line for line in agent.log() if line["message"].startswith("the report is not written")]
    assert "reports" in said["message"]


@pytest.mark.deep
def test_a_failed_attempt_tries_the_page_of_its_end_and_one_that_was_told_to_go_does_not(agent: Agent) -> None:
    agent.output.mkdir(parents=True)
    (agent.output / "reports").write_text("no folder: each try is a line, also one that takes too long")
    tries = []
    for ends in (lambda: os.kill(agent.rank_pid(1), signal.SIGKILL), lambda: agent.send(signal.SIGTERM)):
        agent.start("prints_and_waits")
        agent.rank_pid(0), agent.rank_pid(1)
        ends()
        agent.wait()
        tries.append([line["message"] for line in agent.log() if line["message"].startswith("the report is not")])
        for rank in (0, 1):
            (agent.scratch / f"rank-{rank}").unlink()
    assert [len(one) for one in tries] == [1, 0], tries


@dataclass
class Processes:
    """In the place of real ones."""

    phases: list[str] = field(default_factory=list)
    killed: list[int] = field(default_factory=list)
    ended: dict[int, int] = field(default_factory=dict)

    def spawn(self, command: list[str], **_: Any) -> int:
        self.phases.append(command[command.index("--phase") + 1])
        return len(self.phases)

    def kill(self, pid: int) -> None:
        self.killed.append(pid)

    def reap(self) -> dict[int, int]:
        return self.ended


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> Processes:
    found = Processes()
    monkeypatch.setattr(report_page, "children", found)
    return found


def page_of(rank: int = 0) -> ReportPage:
    assignment = SimpleNamespace(pod=SimpleNamespace(rank=rank), job=SimpleNamespace(output_directory="/output"))
    return ReportPage(cast("Assignment", assignment), {})


def at(step: int) -> PodStatus:
    """Of a pod that has saved this step."""
    saved = CheckpointStatus(step=step, path=f"/output/{step}", saved_at="t") if step else None
    return PodStatus(job_uid="j", pod_uid="p", attempt=1, rank=0, phase="Training", heartbeat_at="t", checkpoint=saved)


def test_checkpoints_that_come_often_make_a_page_a_minute_and_one_process_writes_at_a_time(
    processes: Processes,
) -> None:
    page = page_of()
    for second in range(150):
        page.observe(at(second), float(second))
        page.heed({1: 0} if second == 10 else {})
    assert processes.phases == [RUNNING] * 2, "when the first had ended, and a minute was over"
    page.write(ENDED, 150.0)
    assert (processes.phases[2:], processes.killed) == ([ENDED], [2]), "what it writes is out of date"


def test_who_writes_too_long_is_killed_and_nobody_follows_while_he_cannot_die(processes: Processes) -> None:
    page = page_of()
    for second in range(300):
        page.observe(at(second), float(second))
    assert (processes.phases, processes.killed) == ([RUNNING], [1])
    page.heed({1: -9})
    page.observe(at(300), 300.0)
    assert processes.phases == [RUNNING] * 2


def test_a_pod_of_which_nothing_is_new_writes_nothing_and_another_pod_than_rank_0_s_never_does(
    processes: Processes,
) -> None:
    page, other = page_of(), page_of(rank=1)
    for second in range(3):
        page.observe(at(7), float(second))
        other.observe(at(second), float(second))
    other.write(SUCCEEDED, 3.0)
    assert processes.phases == []


@pytest.fixture
def wakeup() -> Iterator[tuple[int, Callable[[int], object]]]:
    """Where the numbers of signals are read, and what sends one."""
    read, write_ = os.pipe()
    os.set_blocking(read, False)
    yield read, lambda number: os.write(write_, bytes([number]))
    os.close(read)
    os.close(write_)


def test_at_the_end_the_page_is_waited_for_until_its_process_ends(
    processes: Processes, wakeup: tuple[int, Callable[[int], object]]
) -> None:
    read, send = wakeup
    processes.ended = {1: 0}
    send(signal.SIGCHLD)
    page = page_of()
    assert page.write_last(SUCCEEDED, read) == 0
    assert (processes.phases, processes.killed, page.pid) == ([SUCCEEDED], [], None)


def test_whoever_tells_the_pod_to_go_meanwhile_waits_for_no_page(
    processes: Processes, wakeup: tuple[int, Callable[[int], object]]
) -> None:
    read, send = wakeup
    send(signal.SIGTERM)
    assert page_of().write_last(SUCCEEDED, read) == 1
    assert (processes.phases, processes.killed) == ([SUCCEEDED], [1])


def test_the_page_of_a_failure_that_takes_too_long_is_given_up_and_the_log_says_so(
    processes: Processes,
    wakeup: tuple[int, Callable[[int], object]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(report_page, "LAST_SECONDS_OF_A_FAILURE", 0.01)
    assert page_of().write_last(ENDED, wakeup[0]) == 0
    assert (processes.phases, processes.killed) == ([ENDED], [1])
    assert "waits no longer" in caplog.text


def test_a_writer_that_is_killed_is_one_line_in_the_log(processes: Processes, caplog: pytest.LogCaptureFixture) -> None:
    page = page_of()
    page.write(RUNNING, 0.0)
    page.heed({1: -9})
    assert "the report is not written: its process ended with code -9" in caplog.text
    page.write(RUNNING, 60.0)
    page.observe(at(0), 180.0)
    assert processes.killed == [2]
    assert "longer than 120 s" in caplog.text


def test_what_a_writer_that_was_killed_left_goes_with_the_next_page(agent: Agent) -> None:
    (agent.output / ".oarlock").mkdir(parents=True)
    (agent.output / "reports").mkdir()
    (agent.output / "reports/.tmp-index.html-0").write_text("torn")
    write(agent.output, phase=RUNNING)
    assert [path.name for path in (agent.output / "reports").iterdir()] == ["index.html"]
