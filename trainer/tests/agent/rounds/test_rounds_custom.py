"""A command of the job's own that starts anew under real agents: its pod stays, and nothing of the round before does."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import own_program
import pytest
from agent_process import Agent, free_port, lives, pair
from pythons import PYTHONS

from oarlock_local.patience import eventually
from oarlock_local.pytest_tiers import quick_first

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

STANDIN = str(Path(__file__).parents[2] / "support" / "standin.py")


def in_place(agent: Agent) -> Agent:
    agent.job["recovery"] = {"inPlace": "Auto"}
    agent.job["preflight"]["storage"] = False
    agent.environment["OARLOCK_BACKOFF"] = "0 0"  # what a gang waits otherwise: test_rounds_backoff.py
    return agent


@pytest.fixture
def lone(agent: Agent) -> Agent:
    agent.job["nodes"] = 1
    return in_place(agent)


@pytest.fixture
def gang(tmp_path: Path) -> Iterator[tuple[Agent, Agent]]:
    """Two nodes."""
    agents = [in_place(agent) for agent in pair(tmp_path)]
    yield agents[0], agents[1]
    for agent in agents:
        agent.end()


def command(name: str) -> list[str]:
    return [sys.executable, own_program.__file__, name]


def linked(gang: tuple[Agent, Agent]) -> None:
    stands = "the gang link to pod 0 stands"
    eventually(lambda: any(line.get("message") == stands for line in gang[1].log()), stands)


def processes(agent: Agent, number: int) -> list[int]:
    """The launcher of that round, its rank and its daemon, once they run."""
    found: list[int] = json.loads(agent.awaited(f"round-{number}"))
    return found


@pytest.mark.parametrize(
    ("victim", "python"),
    quick_first(
        pytest.param(victim, *python.values, id=f"of node {victim}-{python.id}")
        for victim, python in enumerate(PYTHONS)
    ),
)
def test_a_command_that_is_killed_starts_anew_on_all_nodes_once_all_that_descends_from_it_is_gone(
    gang: tuple[Agent, Agent], bundle: Path, victim: int, python: Callable[[], Path]
) -> None:
    for agent in gang:
        agent.start_bundled(bundle, command("runs_in_rounds"), python=python())
    linked(gang)
    before = [processes(agent, 1) for agent in gang]
    os.kill(before[victim][0], signal.SIGKILL)
    after = [processes(agent, 2) for agent in gang]
    assert not any(lives(pid) for node in before for pid in node)
    assert all(lives(pid) for node in after for pid in node)
    assert not any((agent.scratch / "met-a-daemon").exists() for agent in gang)
    status = gang[0].status()
    (end,) = status["rounds"]
    assert (status["round"], end["number"], end["rank"], end["code"]) == (2, 1, victim, 137)
    for agent in gang:
        agent.mark("finish")
    assert [agent.wait() for agent in gang] == [0, 0]


@pytest.mark.deep
def test_where_a_pod_is_lost_and_replaced_the_command_starts_anew_in_the_new_pod_and_in_the_one_that_stood_by(
    gang: tuple[Agent, Agent], bundle: Path
) -> None:
    for agent in gang:
        agent.environment["OARLOCK_REPLACES_PODS"] = "1"
        agent.start_bundled(bundle, command("runs_in_rounds"))
    linked(gang)
    survivor, (stays, goes) = gang[0].pid, [processes(agent, 1) for agent in gang]
    gang[1].end()
    for pid in goes:
        with contextlib.suppress(ProcessLookupError):  # the kernel was faster: its parent is dead
            os.kill(pid, signal.SIGKILL)
    for file in gang[1].scratch.glob("*-1"):
        file.unlink()
    gang[1].environment |= {"OARLOCK_INCARNATION": "2", "OARLOCK_FOLLOWS_THE_DEAD": "1", "OARLOCK_POD_UID": "another"}
    gang[1].start_bundled(bundle, command("runs_in_rounds"))
    after = [pid for agent in gang for pid in processes(agent, 2)]
    assert not any(map(lives, [*stays, *goes]))
    assert all(map(lives, after))
    assert not (gang[1].scratch / "round-1").exists(), "a new pod begins with the round that the others are at"
    assert gang[0].pid == survivor
    (end,) = gang[0].status()["rounds"]
    assert (end["number"], end["rank"], end["code"], end["lostPod"]) == (1, 1, 82, True)
    for agent in gang:
        agent.mark("finish")
    assert [agent.wait() for agent in gang] == [0, 0]


@pytest.mark.deep
def test_without_in_place_a_command_that_is_killed_ends_its_pod(lone: Agent, bundle: Path) -> None:
    lone.job["recovery"] = {}
    lone.start_bundled(bundle, command("runs_in_rounds"))
    os.kill(processes(lone, 1)[0], signal.SIGKILL)
    assert lone.wait() == 137
    assert not (lone.scratch / "round-2").exists()


@pytest.mark.deep
def test_a_command_that_fails_at_once_ends_its_pod_after_three_rounds_with_the_last_ones_own_words(
    lone: Agent, bundle: Path
) -> None:
    lone.start_bundled(bundle, command("fails_at_once"))
    assert lone.wait() == 3
    assert sorted(path.name for path in lone.scratch.glob("round-*")) == ["round-1", "round-2", "round-3"]
    assert "of the first round" not in lone.report()["summary"]
    assert "of the first round" in lone.log_path.read_text()  # passed through


@pytest.mark.deep
def test_asked_to_leave_in_a_later_round_it_saves_and_leaves_as_in_the_first(lone: Agent, bundle: Path) -> None:
    lone.start_bundled(bundle, command("saves_when_asked"))
    first = lone.awaited("running")
    os.kill(int(first), signal.SIGKILL)
    eventually(lambda: lone.awaited("running") != first, "the second round")
    lone.send(signal.SIGTERM)
    assert lone.wait() == 86
    assert (lone.scratch / "saved").exists()


def test_steps_that_it_tells_by_webhooks_are_those_of_its_own_round(lone: Agent, bundle: Path) -> None:
    lone.job["ports"]["status"] = port = free_port()
    lone.environment["STATUS_PORT"] = str(port)
    lone.start_bundled(bundle, [sys.executable, STANDIN, "reports_steps"])
    os.kill(int(lone.awaited("running")), signal.SIGKILL)

    def booked() -> list[dict[str, Any]]:
        return [end for end in lone.status().get("rounds", ()) if end["downSeconds"] is not None]

    (end,) = eventually(booked, "a step of the second round")
    assert (end["step"], end["resumedStep"], end["code"]) == (7, 0, 137)
    lone.mark("finish")
    assert lone.wait() == 0


@pytest.mark.deep
def test_where_a_command_is_done_on_one_node_its_failure_on_another_is_followed_by_no_round(
    gang: tuple[Agent, Agent], bundle: Path
) -> None:
    for agent, name in zip(gang, ("runs", "fails_when_told"), strict=True):
        agent.start_bundled(bundle, command(name))
        agent.awaited("running")
    linked(gang)
    gang[0].mark("finish")
    assert gang[0].wait() == 0
    gang[1].mark("fail")
    assert gang[1].wait() == 3


@pytest.mark.deep
def test_a_node_that_waits_for_the_next_round_ends_when_another_one_is_done(
    gang: tuple[Agent, Agent], bundle: Path
) -> None:
    for agent, name in zip(gang, ("runs", "fails_when_told"), strict=True):
        agent.start_bundled(bundle, command(name))
        agent.awaited("running")
    linked(gang)
    gang[0].send(signal.SIGSTOP)  # so that it does not hear of the failure before its own command is done
    gang[1].mark("fail")
    eventually(lambda: gang[1].status()["message"] == "the ranks start anew", "it stands by")
    gang[0].mark("finish")
    eventually(lambda: not lives(int(gang[0].awaited("running"))), "node 0's command is done")
    gang[0].send(signal.SIGCONT)
    assert [agent.wait() for agent in gang] == [0, 3]
