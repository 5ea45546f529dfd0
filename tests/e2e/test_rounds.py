"""Ranks that start anew inside living pods, and lost pods that are replaced: what a fault costs (recovery.inPlace: Auto)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime, timedelta
from typing import Any

import pytest

from oarlock_api.contract.names import Label, pod_name
from oarlock_local import patience
from tests.e2e.jobs import SMALL, Jobs
from tests.e2e.test_lost_nodes import cordoned

pytestmark = [pytest.mark.nodes, pytest.mark.timeout(400)]

NAME = "in-rounds"


@pytest.fixture(scope="module")
def gang(jobs: Jobs) -> Iterator[str]:
    """A gang of two nodes that trains, in rounds."""
    jobs.apply(NAME, recovery={"inPlace": "Auto", "hangSeconds": 15}, **SMALL)
    jobs.wait_for_checkpoint_of(NAME, 1)
    yield NAME
    jobs.delete(NAME)


def pods(jobs: Jobs) -> set[str]:
    """The UIDs of the gang's pods."""
    found = jobs.cluster.kubectl(
        "get", "pods", "-l", f"oarlock.dev/job={NAME}", "-o", "jsonpath={.items[*].metadata.uid}"
    )
    return set(found.split())


def trains_in(jobs: Jobs, number: int) -> dict[str, Any]:
    """What the leader says once a round has done a step, and the gang saved after it."""

    def stepped(_: dict[str, Any]) -> bool:
        said = jobs.agent(f"{NAME}-1-0")
        return bool(said.get("round") == number and said["step"] is not None and said["rounds"][-1]["downSeconds"])

    jobs.wait(NAME, f"a step of round {number}", stepped)
    return jobs.agent(f"{NAME}-1-0")


@pytest.mark.parametrize(
    ("pod", "signal", "code"),
    [
        pytest.param(1, "KILL", 137, marks=pytest.mark.smoke("resumes in place")),
        (0, "KILL", 137),
        (1, "STOP", 83),
    ],
)
def test_ranks_that_are_killed_crash_or_hang_start_anew_in_their_pods_from_the_newest_checkpoint(
    jobs: Jobs, gang: str, pod: int, signal: str, code: int
) -> None:
    before, number = pods(jobs), jobs.agent(f"{gang}-1-0").get("round", 1)
    jobs.signal_rank(f"{gang}-1-{pod}", pod, signal)
    end = trains_in(jobs, number + 1)["rounds"][-1]
    assert (end["number"], end["rank"], end["code"]) == (number, pod, code)
    # A step may have been saved by all before rank 0 came to tell of it.
    assert 0 < end["resumedStep"] <= end["step"] + 1
    assert pods(jobs) == before
    after = jobs.status(gang)["latestCheckpoint"]["step"]
    status = jobs.wait(gang, "a checkpoint", lambda status: status["latestCheckpoint"]["step"] > after)
    assert (status["attempt"], len(status["attempts"])) == (1, 1)
    booked = status["rounds"][-1]
    told = booked["round"], booked["rank"], booked["exitCode"], booked["resumedFromStep"]
    assert told == (number, pod, code, end["resumedStep"])
    node = jobs.cluster.kubectl("get", "pod", f"{gang}-1-{pod}", "-o", "jsonpath={.spec.nodeName}")
    assert booked["nodeName"] == node
    assert booked["lostSteps"] == max(end["step"] - end["resumedStep"], 0)
    assert len(jobs.events(gang, "RanksRestarted")) == number
    jobs.assert_no_loss_changed(gang)


@pytest.fixture
def fresh(jobs: Jobs, request: pytest.FixtureRequest) -> Iterator[str]:
    """Another such gang: a program that was killed before is not given a new pod at once."""
    what = "evicted" if "evicted" in request.node.name else "lost"
    name = f"{what}-{request.node.callspec.params['rank']}"
    jobs.apply(name, recovery={"inPlace": "Auto"}, **SMALL)
    jobs.wait_for_checkpoint_of(name, 1)
    yield name
    jobs.delete(name)


@pytest.fixture
def remembering(jobs: Jobs) -> Iterator[str]:
    """Another one, off the operator's node, which keeps its state in memory and seldom saves."""
    name = "remembers"
    with cordoned(jobs.cluster, [jobs.operator()["spec"]["nodeName"]]):
        jobs.apply(name, recovery={"inPlace": "Auto", "memory": {"everySteps": 5}}, **{**SMALL, "every": 75})
        jobs.wait(name, "its place", lambda _: len(jobs.nodes(name)) == 2)
    jobs.wait_for_checkpoint_of(name, 1)
    yield name
    jobs.delete(name)


def newest(jobs: Jobs, name: str) -> dict[int, dict[str, Any]]:
    """Rank -> the metadata of its newest pod."""
    found = jobs.cluster.kubectl("get", "pods", "-l", f"oarlock.dev/job={name}", "-o", "json")
    every = [pod["metadata"] for pod in json.loads(found)["items"]]
    every.sort(key=lambda metadata: int(metadata["labels"].get(Label.INCARNATION, 1)))
    return {int(metadata["labels"][Label.RANK]): metadata for metadata in every}


@pytest.mark.parametrize("rank", [1, 0])
def test_a_pod_that_is_lost_is_replaced_and_training_goes_on_with_the_same_losses_in_the_pod_that_is_left(
    jobs: Jobs, fresh: str, rank: int
) -> None:
    before = newest(jobs, fresh)
    jobs.cluster.fault("kill-container", f"default/{before[rank]['name']}")
    status = jobs.wait(
        fresh,
        "the round after it",
        lambda status: status.get("round") == 2 and "stage" not in status["recovery"],
    )
    assert (status["attempt"], len(status["attempts"])) == (1, 1)
    after = newest(jobs, fresh)
    assert after[1 - rank]["uid"] == before[1 - rank]["uid"]
    assert after[rank]["name"] == pod_name(fresh, 1, rank, 2)
    booked = status["rounds"][-1]
    assert (booked["round"], booked["rank"], booked["rung"]) == (1, rank, "ReplacePod")
    saved = status["latestCheckpoint"]["step"]
    jobs.wait(fresh, "a checkpoint", lambda status: status["latestCheckpoint"]["step"] > saved)
    assert jobs.status(fresh)["attempt"] == 1
    jobs.assert_no_loss_changed(fresh)


@pytest.mark.parametrize("rank", [pytest.param(1, marks=pytest.mark.smoke("leaves a drained node")), 0])
def test_a_pod_that_is_evicted_has_the_gang_save_and_is_replaced_and_no_step_is_done_again(
    jobs: Jobs, fresh: str, rank: int
) -> None:
    before = newest(jobs, fresh)
    jobs.evict(before[rank]["name"])
    status = jobs.wait(
        fresh,
        "the round after it, and the end of the old pod",
        lambda status: (
            status.get("round") == 2 and "stage" not in status["recovery"] and not status["recovery"].get("surging")
        ),
    )
    assert (status["attempt"], status["restarts"]["voluntary"]) == (1, 1)
    after = newest(jobs, fresh)
    assert after[1 - rank]["uid"] == before[1 - rank]["uid"]
    assert after[rank]["name"] == pod_name(fresh, 1, rank, 2)
    booked = status["rounds"][-1]
    assert (booked["rank"], booked["rung"], booked["reason"], booked["lostSteps"]) == (rank, "ReplacePod", "Evicted", 0)
    saved = status["latestCheckpoint"]["step"]
    jobs.wait(fresh, "a checkpoint", lambda status: status["latestCheckpoint"]["step"] > saved)
    steps = [line["step"] for line in jobs.metrics(fresh) if "loss" in line]
    assert len(steps) == len(set(steps)), "each step was done once"
    if rank != 0:  # a third node is free: its next pod was ready before it left
        of_job = f"--field-selector=involvedObject.name={fresh}"
        events = jobs.cluster.kubectl("get", "events", of_job, "-o", "jsonpath={.items[*].reason}")
        assert "SurgePod" in events
        created = datetime.fromisoformat(after[rank]["creationTimestamp"])
        began = max(line["time"] for line in jobs.metrics(fresh) if "startSeconds" in line)
        assert created < datetime.fromisoformat(began) - timedelta(seconds=1)
        assert "waits until the one before it has left" in jobs.cluster.kubectl("logs", after[rank]["name"])


@contextmanager
def killed(jobs: Jobs, pod: str, _node: str) -> Iterator[None]:
    """The pod alone, with its agent and ranks."""
    jobs.cluster.fault("kill-container", f"default/{pod}")
    yield


@contextmanager
def without_power(jobs: Jobs, _pod: str, node: str) -> Iterator[None]:
    """Its node, until the end of the block."""
    jobs.cluster.fault("kill", node)
    try:
        yield
    finally:
        jobs.cluster.fault("start", node)
        jobs.cluster.kubectl("wait", "--for=condition=Ready", f"node/{node}", patience.KUBECTL)


@pytest.mark.parametrize("lost", [killed, without_power])
def test_the_state_of_a_lost_pod_comes_back_from_the_next_node_and_no_checkpoint_is_read(
    jobs: Jobs, remembering: str, lost: Callable[[Jobs, str, str], AbstractContextManager[None]]
) -> None:
    before, pod = newest(jobs, remembering), f"{remembering}-1-1"
    node = jobs.cluster.kubectl("get", "pod", pod, "-o", "jsonpath={.spec.nodeName}")
    saved = jobs.status(remembering)["latestCheckpoint"]["step"]
    jobs.wait(remembering, "steps after it", lambda _: (jobs.agent(f"{remembering}-1-0").get("step") or 0) > saved + 30)
    with lost(jobs, pod, node):
        status = jobs.wait(
            remembering,
            "the round after it",
            lambda status: status.get("round") == 2 and "stage" not in status["recovery"],
        )
    ended = status["rounds"][-1]
    assert ended["rung"] == "ReplacePod"
    assert (status["attempt"], newest(jobs, remembering)[0]["uid"]) == (1, before[0]["uid"])
    assert saved < ended["resumedFromStep"] < saved + 75, "from a step that was never saved"
    jobs.assert_no_loss_changed(remembering)
