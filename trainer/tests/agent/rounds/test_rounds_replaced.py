"""Real agents of a gang whose lost pods are replaced: a whole pod is killed, the others stand by and take its next one in."""

from __future__ import annotations

import os
import signal
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from agent_process import LOST_SOON, Agent, lives, pair

from oarlock_api.contract.history import read_story
from oarlock_local.patience import eventually
from oarlock_local.pytest_tiers import quick_first

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def gang(tmp_path: Path) -> Iterator[list[Agent]]:
    """Two nodes, each with two ranks."""
    agents = pair(tmp_path)
    for agent in agents:
        agent.job["recovery"] = {"inPlace": "Auto", "standbySeconds": 300}
        agent.environment["OARLOCK_REPLACES_PODS"] = "1"
    yield agents
    for agent in agents:
        agent.end()


def training(gang: list[Agent], program: str = "trains_until_told") -> list[int]:
    """Start all, wait until their ranks train and the link stands; the ranks' pids."""
    for agent in gang:
        agent.start(program)
    stands = "the gang link to pod 0 stands"
    eventually(lambda: any(line.get("message") == stands for line in gang[1].log()), stands)
    for agent in gang:
        eventually(lambda agent=agent: agent.status()["step"] is not None, "a step")
    return [agent.rank_pid(2 * node + local) for node, agent in enumerate(gang) for local in range(2)]


def kill(agent: Agent) -> None:
    """End a pod as a node that loses its power does."""
    agent.end()


def lost_soon(gang: list[Agent]) -> None:
    """Have the gang wait for the silence of a lost pod for a second only."""
    for agent in gang:
        agent.altered |= LOST_SOON


def replace(agent: Agent, incarnation: int) -> None:
    """Make the next pod of the rank, on a node where nothing of the one before is left."""
    for file in agent.scratch.glob("rank-*"):
        file.unlink()
    agent.environment |= {
        "OARLOCK_INCARNATION": str(incarnation),
        "OARLOCK_FOLLOWS_THE_DEAD": "1",
        "OARLOCK_POD_UID": str(uuid.uuid4()),
    }
    agent.start("trains_until_told")


def in_round(agent: Agent, number: int) -> dict[str, Any]:
    """What rank 0's agent tells once that round has done a step, and it is known how long that took."""

    def trains() -> dict[str, Any] | None:
        status = agent.status()
        known = status.get("round") == number and status["rounds"][-1]["downSeconds"] is not None
        return status if known else None

    found: dict[str, Any] = eventually(trains, f"a step of round {number}")
    return found


def ends_well(gang: list[Agent]) -> None:
    for agent in gang:
        agent.mark("finish")
    assert [agent.wait() for agent in gang] == [0, 0]


def test_a_member_that_is_lost_is_named_and_its_next_pod_starts_the_next_round_with_the_others(
    gang: list[Agent],
) -> None:
    lost_soon(gang)
    before = training(gang)
    survivor = gang[0].pid
    kill(gang[1])
    (lost,) = eventually(lambda: gang[0].status().get("lost"), "the lost pod")
    assert (lost["rank"], lost["incarnation"], lost["code"]) == (1, 1, 82)
    eventually(lambda: not any(map(lives, before)), "the end of all ranks")
    replace(gang[1], 2)
    status = in_round(gang[0], 2)
    assert "lost" not in status
    (end,) = status["rounds"]
    assert (end["number"], end["rank"], end["code"], end["lostPod"]) == (1, 1, 82, True)
    assert gang[0].pid == survivor
    eventually(lambda: gang[1].status()["phase"] == "Training", "training in the new pod")
    ends_well(gang)
    ended, _ = (line for line in read_story(gang[0].output) if line.type in {"RoundEnded", "RanksRestarted"})
    assert (ended.rank, ended.data["lostPod"], ended.message) == (1, True, end["why"])


def test_a_leader_that_is_lost_is_followed_by_its_next_pod_which_counts_the_rounds_on(gang: list[Agent]) -> None:
    lost_soon(gang)
    before = training(gang)
    survivor = gang[1].pid
    kill(gang[0])
    eventually(lambda: not any(map(lives, before)), "the end of all ranks")
    replace(gang[0], 2)
    (end,) = in_round(gang[0], 2)["rounds"]
    assert (end["number"], end["rank"], end["lostPod"]) == (1, 0, True)
    mark = gang[1].scratch / "round-of-2"
    eventually(lambda: mark.read_text() == "2 2", "rank 2 that knows which leader's round it is")
    assert gang[1].pid == survivor
    assert lives(survivor)
    ends_well(gang)


@pytest.mark.deep
def test_pods_are_lost_and_replaced_one_after_the_other_and_ranks_start_anew_in_those_that_are_new(
    gang: list[Agent],
) -> None:
    training(gang)
    kill(gang[1])
    replace(gang[1], 2)
    in_round(gang[0], 2)
    kill(gang[0])
    replace(gang[0], 3)
    in_round(gang[0], 3)
    eventually(lambda: lives(gang[1].rank_pid(3)), "rank 3 of the third round")
    os.kill(gang[1].rank_pid(3), signal.SIGKILL)
    end = in_round(gang[0], 4)["rounds"][-1]
    assert (end["number"], end["rank"], end["code"], "lostPod" in end) == (3, 1, 137, False)
    ends_well(gang)


@pytest.mark.parametrize("lost", quick_first([0, 1]), ids=["rank 0's", "another's"])
def test_survivors_leave_when_no_pod_comes_for_the_lost_one(gang: list[Agent], lost: int) -> None:
    lost_soon(gang)
    for agent in gang:
        agent.job["recovery"]["standbySeconds"] = 1
    training(gang)
    kill(gang[lost])
    assert gang[1 - lost].wait() == 82


@pytest.mark.deep
def test_a_pod_that_waits_for_a_replaced_one_goes_at_once_when_it_is_asked_to(gang: list[Agent]) -> None:
    training(gang)
    kill(gang[1])
    eventually(lambda: gang[0].status().get("lost"), "the lost pod")
    gang[0].send(signal.SIGTERM)
    assert gang[0].wait() == 86


@pytest.mark.deep
def test_a_pod_that_storage_fails_ends_the_gang_also_where_pods_are_replaced(gang: list[Agent]) -> None:
    for agent in gang:
        agent.start("storage_fails_when_told")
    stands = "the gang link to pod 0 stands"
    eventually(lambda: any(line.get("message") == stands for line in gang[1].log()), stands)
    gang[1].rank_pid(2)
    gang[1].mark("fail")
    assert [agent.wait() for agent in gang] == [82, 84]


@pytest.mark.parametrize("asked", quick_first([0, 1]), ids=["rank 0's", "another's"])
def test_a_pod_that_is_asked_to_go_has_the_gang_save_and_goes_while_the_others_wait_for_its_next_one(
    gang: list[Agent], asked: int
) -> None:
    before = training(gang, "saves_when_asked")
    stays = gang[1 - asked]
    survivor = stays.pid
    gang[asked].send(signal.SIGTERM)
    assert gang[asked].wait() == 86
    for rank in (0, 1, 2, 3):
        assert (gang[rank // 2].scratch / f"saved-{rank}").exists(), "all saved together"
    report = gang[asked].report()
    assert (report["code"], report["step"]) == (86, 7)
    assert report["leavingSeconds"] >= 0
    assert not any(map(lives, before))
    replace(gang[asked], 2)
    (end,) = in_round(gang[0], 2)["rounds"]
    assert (end["number"], end["rank"], end["lostPod"]) == (1, asked, True)
    assert (stays.pid, lives(survivor)) == (survivor, True)


@pytest.mark.deep
def test_a_gang_whose_pods_are_all_asked_to_go_saves_once_and_leaves(gang: list[Agent]) -> None:
    training(gang, "saves_when_asked")
    for agent in gang:
        agent.send(signal.SIGTERM)
    assert [agent.wait() for agent in gang] == [86, 86]
    for rank in (0, 1, 2, 3):
        assert (gang[rank // 2].scratch / f"saved-{rank}").exists()


@pytest.mark.deep
def test_a_pod_that_is_asked_to_go_while_rank_0_says_nothing_saves_by_itself(gang: list[Agent]) -> None:
    training(gang, "saves_when_asked")
    gang[0].send(signal.SIGSTOP)
    gang[1].send(signal.SIGTERM)
    assert gang[1].wait() == 86
    assert (gang[1].scratch / "saved-2").exists()
    gang[0].send(signal.SIGCONT)


@pytest.mark.deep
def test_a_pod_that_is_asked_to_go_twice_waits_for_nobody(gang: list[Agent]) -> None:
    training(gang, "saves_when_told_to_finish")
    gang[1].send(signal.SIGTERM)
    eventually((gang[1].scratch / "asked-2").exists, "the order to save")
    gang[1].send(signal.SIGTERM)
    assert gang[1].wait() == 86
    assert "killed unsaved" in gang[1].report()["summary"]


@pytest.mark.deep
def test_a_pod_whose_ranks_have_saved_and_that_is_asked_to_go_too_cuts_nobody_s_save_off(gang: list[Agent]) -> None:
    gang[0].start("saves_when_told_to_finish")
    gang[1].start("saves_when_asked")
    eventually(lambda: all(agent.status()["step"] is not None for agent in gang), "a step")
    eventually(lambda: any("link to pod 0 stands" in str(line.get("message")) for line in gang[1].log()), "the link")
    gang[0].send(signal.SIGTERM)
    eventually((gang[0].scratch / "asked-0").exists, "the order to save")
    eventually(lambda: gang[1].status()["message"] == "the ranks start anew", "the end of the other pod's ranks")
    gang[1].send(signal.SIGTERM)
    eventually(lambda: "asked to leave" in str(gang[1].log()[-1].get("message")), "that it was asked")
    assert lives(gang[1].pid), "it waits for the ranks of pod 0"
    gang[0].mark("finish")
    assert [agent.wait() for agent in gang] == [86, 86]
    assert "saved step 7" in gang[0].report()["summary"]


@pytest.mark.deep
def test_pods_that_are_asked_to_go_before_all_have_met_leave_at_once(gang: list[Agent]) -> None:
    gang[0].start("never_leaves")
    gang[0].rank_pid(0)
    gang[0].send(signal.SIGTERM)
    assert gang[0].wait() == 86


@pytest.mark.deep
def test_survivors_that_saved_for_a_pod_that_nobody_follows_say_what_they_waited_for(gang: list[Agent]) -> None:
    for agent in gang:
        agent.job["recovery"]["standbySeconds"] = 1
    training(gang, "saves_when_asked")
    gang[1].send(signal.SIGTERM)
    assert [agent.wait() for agent in gang] == [82, 86]
    assert "the gang was not whole within 1 s" in gang[0].report()["summary"]
