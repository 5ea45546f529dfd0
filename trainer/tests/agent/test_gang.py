"""Two real agents of one gang, without an operator: whoever leaves takes the other with it, and says why."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING

import pytest
from agent_process import Agent, lives, pair

from oarlock_api.contract.history import StoryType, find_stacks, read_story
from oarlock_api.contract.requests import RequestState
from oarlock_local.patience import eventually
from oarlock_local.pytest_tiers import quick_first

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def gang(tmp_path: Path) -> Iterator[tuple[Agent, Agent]]:
    """Nodes 0 and 1 of a job, each with two ranks."""
    agents = pair(tmp_path)
    yield agents[0], agents[1]
    for agent in agents:
        agent.end()


def linked(gang: tuple[Agent, Agent], programs: tuple[str, str] = ("never_leaves", "never_leaves")) -> list[int]:
    """Start both, wait until their ranks run and the link stands; returns the ranks' pids."""
    pids = []
    for node, (agent, program) in enumerate(zip(gang, programs, strict=True)):
        agent.start(program)
        pids += [agent.rank_pid(2 * node), agent.rank_pid(2 * node + 1)]
    stands = "the gang link to pod 0 stands"
    eventually(lambda: any(line.get("message") == stands for line in gang[1].log()), stands)
    return pids


def waited_to_be_told(agent: Agent) -> bool:
    return any(line.get("message") == "waiting to be told to go" for line in agent.log())


@pytest.mark.parametrize("victim", quick_first([0, 1]), ids=["of rank 0's node", "of another node"])
def test_a_rank_that_is_killed_ends_the_other_node_as_a_victim_that_knows_why_and_waits_to_be_told_to_go(
    gang: tuple[Agent, Agent], victim: int
) -> None:
    pids = linked(gang)
    os.kill(pids[2 * victim], signal.SIGKILL)
    assert gang[victim].wait() == 137
    other = gang[1 - victim]
    assert other.wait() == 82
    report = other.report()
    assert report["class"] == "PeerLost"
    assert f"rank {2 * victim} was killed by SIGKILL" in report["summary"]
    assert not any(lives(pid) for pid in pids)
    assert waited_to_be_told(other)
    assert not waited_to_be_told(gang[victim])


@pytest.mark.parametrize("victim", quick_first([0, 1]), ids=["rank 0's", "another's"])
def test_an_agent_that_vanishes_without_a_word_is_missed_and_its_victims_end_tells_of_it(
    gang: tuple[Agent, Agent], victim: int
) -> None:
    linked(gang)
    gang[victim].send(signal.SIGKILL)
    assert gang[1 - victim].wait() == 82
    assert gang[1 - victim].report()["summary"].startswith("lost a peer: ")
    assert not waited_to_be_told(gang[1 - victim])


@pytest.mark.deep
def test_nodes_that_are_done_at_different_times_are_no_loss(gang: tuple[Agent, Agent]) -> None:
    linked(gang, ("trains_until_told", "trains_until_told"))
    gang[0].mark("finish")
    assert gang[0].wait() == 0
    gang[1].mark("finish")
    assert gang[1].wait() == 0


@pytest.mark.deep
def test_the_stacks_of_all_ranks_are_there_when_they_are_asked_for_and_the_gang_goes_on(
    gang: tuple[Agent, Agent],
) -> None:
    pids, leader = linked(gang), gang[0]
    os.kill(pids[3], signal.SIGSTOP)

    def done() -> str:
        said = json.loads(leader.get("/status?request=stacks.mine")).get("request") or {}
        return said["message"] if said.get("state") == RequestState.DONE else ""

    assert eventually(done, "an answer") == ("stacks of the ranks of 2 of 2 pods are in their logs and in the history")
    lines = [line for agent in gang for line in agent.log() if line.get("request") == "mine"]
    logged = {line["ofRank"]: line["stacks"] for line in lines}
    assert sorted(logged) == [0, 1, 2, 3]
    assert all("_wait_for" in logged[rank] for rank in range(3))
    assert logged[3] == "it did not answer", "a stopped rank is not continued for it"
    assert all(map(lives, pids))
    told = eventually(
        lambda: [line for line in read_story(leader.output) if line.type == StoryType.STACKS], "a line of the story"
    )
    assert len(told[0].data["files"]) == 2
    for agent in gang:
        eventually(lambda agent=agent: find_stacks(agent.output), "a file")
