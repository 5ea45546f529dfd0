"""Rounds of other members: a spare takes a lost pod's place, or a gang goes on with fewer nodes, and with all again."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from oarlock_api.contract.names import pod_name
from oarlock_local.cluster import Cluster
from tests.e2e.jobs import SMALL, Jobs

pytestmark = [pytest.mark.nodes, pytest.mark.timeout(500)]

FULL = "example.test/full"
ROUNDING = 5e-3
"""Relative: another number of ranks rounds sums of gradients to bfloat16 in another order; other samples differ by 5 %."""


@pytest.fixture
def with_a_spare(jobs: Jobs) -> Iterator[str]:
    """A gang of two nodes that trains, and a pod beyond it that stands by."""
    name = "with-a-spare"
    jobs.apply(name, spares=1, recovery={"inPlace": "Auto"}, **SMALL)
    jobs.wait(name, "its spare", lambda status: status.get("summary", {}).get("nodes") == "2/2+1")
    jobs.wait_for_checkpoint_of(name, 1)
    yield name
    jobs.delete(name)


@pytest.fixture
def elastic(jobs: Jobs) -> Iterator[str]:
    """A gang of three nodes that trains, and that may go on with fewer."""
    name = "elastic"
    asked: dict[str, Any] = {"elastic": {"minNodes": 1, "patienceSeconds": 10}, "training": {"effectiveBatch": 6}}
    jobs.apply(name, nodes=3, recovery={"inPlace": "Auto", "memory": {"everySteps": 1}}, **SMALL, **asked)
    jobs.wait_for_checkpoint_of(name, 1)
    yield name
    jobs.delete(name)


@contextmanager
def full(cluster: Cluster) -> Iterator[None]:
    """No pod finds a place meanwhile. Not by cordons: they come one by one, and a gang leaves the first such node."""
    cluster.kubectl("taint", "nodes", "--all", f"{FULL}:NoSchedule")
    try:
        yield
    finally:
        cluster.kubectl("taint", "nodes", "--all", f"{FULL}:NoSchedule-")


def uids(jobs: Jobs, name: str) -> dict[str, str]:
    """Name -> uid of the job's pods."""
    found = jobs.cluster.kubectl("get", "pods", "-l", f"oarlock.dev/job={name}", "-o", "json")
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in json.loads(found)["items"]}


def trains_after(jobs: Jobs, name: str, rung: str) -> dict[str, Any]:
    """The status once a round that ended so was followed by a step."""
    return jobs.wait(
        name,
        f"a step after {rung}",
        lambda status: (
            "stage" not in status["recovery"]
            and [one for one in status.get("rounds", ()) if one["rung"] == rung and one.get("downSeconds")]
        ),
    )


def degraded(status: dict[str, Any]) -> tuple[str, str]:
    (found,) = [one for one in status["conditions"] if one["type"] == "Degraded"]
    return found["reason"], found["message"]


def assert_the_training_is_the_same(jobs: Jobs, name: str) -> None:
    """Steps that were done again, on however many nodes, have the loss that they had."""
    told = defaultdict(list)
    for line in jobs.metrics(name):
        if "loss" in line:
            told[line["step"]].append(line["loss"])
    assert all(losses == pytest.approx([losses[0]] * len(losses), rel=ROUNDING) for losses in told.values())


@pytest.mark.smoke("has spares")
def test_a_spare_takes_a_lost_pod_s_place_and_the_pod_that_is_made_anew_is_the_next_spare(
    jobs: Jobs, with_a_spare: str
) -> None:
    before = uids(jobs, with_a_spare)
    lost = f"{with_a_spare}-1-1"
    with full(jobs.cluster):
        jobs.cluster.fault("kill-container", f"default/{lost}")
        status = trains_after(jobs, with_a_spare, "TakeSpare")
        assert (status["attempt"], status["standby"]) == (1, [1])
        assert [one["rank"] for one in status["recovery"]["replacing"]] == [1]
        assert degraded(status)[0] == "SparesLacking"
    status = jobs.wait(
        with_a_spare,
        "the next spare",
        lambda status: status["summary"]["nodes"] == "2/2+1" and not status["recovery"].get("replacing"),
    )
    after = uids(jobs, with_a_spare)
    assert {name: uid for name, uid in before.items() if name != lost}.items() <= after.items()
    assert pod_name(with_a_spare, 1, 1, 2) in after
    assert (status["attempt"], status["restarts"]["application"], status["restarts"]["infrastructure"]) == (1, 1, 0)
    saved = status["latestCheckpoint"]["step"]
    jobs.wait(with_a_spare, "a checkpoint", lambda status: status["latestCheckpoint"]["step"] > saved)
    assert_the_training_is_the_same(jobs, with_a_spare)


def test_a_gang_goes_on_with_two_of_three_nodes_and_takes_the_third_again_in_the_same_attempt(
    jobs: Jobs, elastic: str
) -> None:
    before = uids(jobs, elastic)
    lost = f"{elastic}-1-2"
    with full(jobs.cluster):
        jobs.cluster.fault("kill-container", f"default/{lost}")
        status = trains_after(jobs, elastic, "Shrink")
        ended = status["rounds"][-1]
        assert (status["attempt"], status["standby"], ended["nodeCount"]) == (1, [2], 2)
        assert (ended["resumedFromMemory"], ended["lostSteps"] <= 2) == (True, True), ended
        assert status["phase"] == "Running"
    status = trains_after(jobs, elastic, "Grow")
    assert (status["attempt"], len(status["attempts"]), status.get("standby", [])) == (1, 1, [])
    assert (status["restarts"]["application"], status["restarts"].get("voluntary", 0)) == (1, 0)
    after = uids(jobs, elastic)
    assert {name: uid for name, uid in before.items() if name != lost}.items() <= after.items()
    saved = status["latestCheckpoint"]["step"]
    jobs.wait(elastic, "a checkpoint of three", lambda status: status["latestCheckpoint"]["step"] > saved)
    assert_the_training_is_the_same(jobs, elastic)
