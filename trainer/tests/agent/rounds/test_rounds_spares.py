"""Real agents of two nodes and a spare: who trains goes on, whatever befalls the pod that does not."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

import pytest
from agent_process import KEY, LOST_SOON, Agent, agents_of, lives

from oarlock_api.contract.history import read_story
from oarlock_local.patience import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ASIDE = "stands by: the gang trains without this pod"


@pytest.fixture
def gang(tmp_path: Path) -> Iterator[list[Agent]]:
    """Pods 0 and 1 train, with two ranks each, and pod 2 is the spare."""
    agents = agents_of(tmp_path, pods=3)
    for agent in agents:
        agent.job |= {"spares": 1, "recovery": {"inPlace": "Auto", "standbySeconds": 300}}
        (agent.scratch / "key").write_text(KEY)
        agent.environment["OARLOCK_REPLACES_PODS"] = "1"
    yield agents
    for agent in agents:
        agent.end()


def training(gang: list[Agent], program: str = "trains_until_told") -> list[int]:
    """Start all, wait until two train and the spare is of the gang; the ranks' pids."""
    for agent in gang:
        agent.start(program)
    for agent in gang[1:]:
        linked(agent)
    return trained(gang)


def trained(gang: list[Agent]) -> list[int]:
    """Wait until two train; the ranks' pids."""
    for agent in gang[:2]:
        eventually(lambda agent=agent: agent.status()["step"] is not None, "a step")
    return ranks_of(gang[:2])


def linked(agent: Agent) -> None:
    stands = "the gang link to pod 0 stands"
    eventually(lambda: any(line.get("message") == stands for line in agent.log()), stands)


def ranks_of(members: list[Agent]) -> list[int]:
    """By the places of their pods."""
    return [agent.rank_pid(2 * place + local) for place, agent in enumerate(members) for local in range(2)]


def replace(agent: Agent) -> None:
    """Make the next pod of the rank, on a node where nothing of the one before is left."""
    for file in agent.scratch.glob("rank-*"):
        file.unlink()
    agent.environment |= {"OARLOCK_INCARNATION": "2", "OARLOCK_FOLLOWS_THE_DEAD": "1", "OARLOCK_POD_UID": "another"}
    agent.start("trains_until_told")


def in_round(agent: Agent, number: int) -> dict[str, Any]:
    """What rank 0's agent tells once that round has done a step."""

    def trains() -> dict[str, Any] | None:
        status = agent.status()
        known = status.get("round") == number and status["rounds"][-1]["downSeconds"] is not None
        return status if known else None

    found: dict[str, Any] = eventually(trains, f"a step of round {number}")
    return found


def end_well(gang: list[Agent]) -> None:
    for agent in gang:
        agent.mark("finish")
    assert [agent.wait() for agent in gang] == [0, 0, 0]


def test_a_spare_takes_the_place_of_a_lost_pod_with_its_ranks_numbers_and_is_done_with_the_gang(
    gang: list[Agent],
) -> None:
    for agent in gang:
        agent.altered |= LOST_SOON
    before = training(gang)
    eventually(lambda: gang[2].status()["phase"] == "Standby", "that it is ready")
    gang[1].end()
    status = in_round(gang[0], 2)
    assert status["members"] == [0, 2]
    eventually(lambda: gang[2].status()["phase"] == "Training", "that it is one of those that train")
    (end,) = status["rounds"]
    assert (end["rank"], end["lostPod"], end["spare"]) == (1, True, True)
    # A step of rank 0 says nothing of the others, which may still be starting.
    eventually(lambda: not set(ranks_of([gang[0], gang[2]])) & set(before), "new processes of all ranks")
    replace(gang[1])
    eventually(lambda: gang[1].status()["message"] == ASIDE, "the pod that came back stands by")
    assert not list(gang[1].scratch.glob("rank-*"))
    end_well(gang)


def test_a_spare_takes_the_place_of_a_pod_as_soon_as_the_operator_has_seen_its_end(gang: list[Agent]) -> None:
    training(gang)
    eventually(lambda: gang[2].status()["phase"] == "Standby", "that it is ready")
    gang[1].end()
    gang[0].hear_of_the_end(1, next_incarnation=2)
    status = in_round(gang[0], 2)
    (end,) = status["rounds"]
    assert (status["members"], end["rank"], end["lostPod"]) == ([0, 2], 1, True)
    assert end["why"] == "the operator saw the end of pod 1", "nobody waited for its silence"


@pytest.mark.deep
def test_the_history_says_on_which_nodes_a_gang_is_once_all_are_there_that_train(gang: list[Agent]) -> None:
    for agent in (gang[0], gang[2]):
        agent.start("trains_until_told")
    linked(gang[2])
    gang[1].start("trains_until_told")
    linked(gang[1])
    end_well(gang)
    (complete,) = (line for line in read_story(gang[0].output) if line.type == "GangComplete")
    assert set(complete.data["nodes"]) == {"0", "1", "2"}


@pytest.mark.deep
def test_a_spare_that_is_lost_and_comes_back_ends_no_round(gang: list[Agent]) -> None:
    ranks = training(gang)
    gang[2].end()
    gang[0].hear_of_the_end(2, next_incarnation=2)
    (lost,) = eventually(lambda: gang[0].status().get("lost"), "the lost spare")
    assert lost["rank"] == 2
    replace(gang[2])
    eventually(lambda: "lost" not in gang[0].status(), "the next spare")
    assert all(map(lives, ranks))
    end_well(gang)


@pytest.mark.deep
def test_a_spare_that_is_asked_to_go_ends_no_round(gang: list[Agent]) -> None:
    ranks = training(gang)
    gang[2].send(signal.SIGTERM)
    assert gang[2].wait() == 86
    (lost,) = eventually(lambda: gang[0].status().get("lost"), "the lost spare")
    assert (lost["rank"], lost["code"]) == (2, 86)
    assert all(map(lives, ranks))
    finish(gang)


@pytest.mark.deep
def test_a_spare_that_is_unfit_ends_no_round(gang: list[Agent]) -> None:
    # It may be gone before it has said a word to the others: its end is for the operator to see.
    gang[2].job["output_directory"] = "/proc/nowhere"
    for agent in gang:
        agent.start("trains_until_told")
    assert gang[2].wait() == 84
    assert all(map(lives, trained(gang)))
    finish(gang)


def finish(gang: list[Agent]) -> None:
    for agent in gang[:2]:
        agent.mark("finish")
    assert [agent.wait() for agent in gang[:2]] == [0, 0]


@pytest.mark.deep
def test_a_gang_that_is_told_to_go_saves_and_leaves_also_where_its_spare_has_gone_before(gang: list[Agent]) -> None:
    training(gang, "saves_when_asked")
    gang[2].send(signal.SIGTERM)
    assert gang[2].wait() == 86
    for agent in gang[:2]:
        agent.send(signal.SIGTERM)
    assert [agent.wait() for agent in gang[:2]] == [86, 86]
    for node, agent in enumerate(gang[:2]):
        assert (agent.scratch / f"saved-{2 * node}").exists()


@pytest.mark.deep
def test_a_new_rank_0_leads_on_a_gang_in_which_a_spare_trains(gang: list[Agent]) -> None:
    training(gang)
    gang[1].end()
    gang[0].hear_of_the_end(1, next_incarnation=2)
    in_round(gang[0], 2)
    gang[0].end()
    replace(gang[0])
    status = in_round(gang[0], 3)
    assert status["members"] == [0, 2]
    replace(gang[1])
    eventually(lambda: gang[1].status()["message"] == ASIDE, "the pod that came back stands by")
    end_well(gang)
