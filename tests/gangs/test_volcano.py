"""Gangs that the real Volcano places: whole or not at all, in queues, by priority, within a tier.

The queue `small` has room for one gang of two nodes with two GPUs each (volcano.yaml); the cluster has three such nodes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from oarlock_local import patience
from tests.e2e.jobs import Jobs
from tests.gangs.held import holding, tell, wait_for_phase, wait_for_run, wait_until_gone
from tests.gangs.lost_pods import (
    goes_on,
    is_replaced,
    is_replaced_by_the_spare,
    is_replaced_in_vain,
    kill,
    losing_a_node,
    newest,
    training,
)
from tests.gangs.volcano import ACTIONS, Volcano

pytestmark = [pytest.mark.nodes, pytest.mark.timeout(600)]

PLACE: dict[str, Any] = {"gang": "Volcano", "queue": "small"}
GROUPS = "podgroups.scheduling.volcano.sh"


@pytest.fixture
def hold(jobs: Jobs, volcano: Volcano) -> Iterator[Callable[..., None]]:  # noqa: ARG001 - Volcano has to run
    """Makes jobs in the queue that keep what they get until they are told to end."""
    with holding(jobs, **PLACE) as hold:
        yield hold


def groups(jobs: Jobs, name: str) -> dict[str, str]:
    """The job's groups and their phases."""
    path = "jsonpath={range .items[*]}{.metadata.name}={.status.phase} {end}"
    found = jobs.cluster.kubectl("get", GROUPS, "-l", f"oarlock.dev/job={name}", "-o", path)
    return dict(each.split("=", 1) for each in found.split())


def test_a_gang_waits_for_its_queue_and_comes_in_whole_when_another_ends(jobs: Jobs, hold: Callable[..., None]) -> None:
    hold("first")
    status = wait_for_run(jobs, "first")
    assert status["resolved"] == {**status["resolved"], "gang": "Volcano", "schedulerName": "volcano"}
    assert len(jobs.nodes("first")) == 2
    hold("second")
    wait_for_phase(jobs, "second", "Queued")
    status = jobs.wait("second", "Volcano's words", lambda status: "unschedulable" in (status.get("message") or ""))
    assert status["message"].startswith("in the queue small: ")
    assert jobs.nodes("second") == set(), "a node is free, but not for half a gang"
    assert list(groups(jobs, "second").values()) == ["Pending"]
    tell(jobs, "first", "done")
    assert jobs.wait_for_end("first")["phase"] == "Succeeded"
    status = wait_for_run(jobs, "second")
    assert status["attempts"][0]["stageMilliseconds"]["queue"] > 0
    tell(jobs, "second", "done")
    assert jobs.wait_for_end("second")["phase"] == "Succeeded"
    wait_until_gone(jobs, GROUPS, "first", "second")


def test_the_attempt_after_a_failure_gets_the_room_and_the_group_of_the_one_that_failed_goes(
    jobs: Jobs, hold: Callable[..., None]
) -> None:
    hold("clumsy")
    wait_for_run(jobs, "clumsy")
    (before,) = groups(jobs, "clumsy")
    tell(jobs, "clumsy", "crash", "1-1")
    status = wait_for_run(jobs, "clumsy", 2)
    assert status["attempts"][1]["reason"] == "ApplicationError"
    jobs.cluster.kubectl("wait", "--for=delete", f"{GROUPS}/{before}", patience.KUBECTL)
    (after,) = groups(jobs, "clumsy")
    assert (before[-2:], after[-2:]) == ("-1", "-2")
    tell(jobs, "clumsy", "done")
    assert jobs.wait_for_end("clumsy")["phase"] == "Succeeded"


def test_a_suspended_job_keeps_no_room_and_no_place(jobs: Jobs, hold: Callable[..., None]) -> None:
    hold("running")
    wait_for_run(jobs, "running")
    hold("waiting")
    wait_for_phase(jobs, "waiting", "Queued")
    jobs.change("running", suspend=True)
    wait_for_phase(jobs, "running", "Suspended")
    wait_until_gone(jobs, GROUPS, "running")
    wait_for_run(jobs, "waiting")
    jobs.change("running", suspend=False)
    wait_for_phase(jobs, "running", "Queued")
    jobs.delete("waiting")
    wait_for_run(jobs, "running", 2)
    wait_until_gone(jobs, GROUPS, "waiting")


@pytest.mark.parametrize("in_place", ["Never", "Auto"])
def test_who_is_preempted_saves_goes_on_and_no_budget_is_charged(
    jobs: Jobs, volcano: Volcano, hold: Callable[..., None], in_place: str
) -> None:
    volcano.schedule("allocate, preempt, backfill")
    recovery = {"inPlace": in_place}
    jobs.apply("patient", steps=100_000, every=1000, gpusPerNode=1, scheduling=PLACE, recovery=recovery)
    try:
        jobs.wait("patient", "its steps", lambda status: ((status.get("progress") or {}).get("step") or 0) > 0)
        hold("urgent", queuePriorityClassName="production")
        wait_for_run(jobs, "urgent")
        status = jobs.wait("patient", "its next attempt", lambda status: status["attempt"] == 2)
        assert status["attempts"][1]["reason"] == "Evicted"
        assert status["restarts"]["infrastructure"] == status["restarts"]["application"] == 0
        assert status["restarts"]["voluntary"] == 1
        tell(jobs, "urgent", "done")
        assert jobs.wait_for_end("urgent")["phase"] == "Succeeded"
        status = jobs.wait("patient", "its next steps", lambda status: "resumedFromStep" in status["attempts"][1])
        assert status["attempts"][1]["resumedFromStep"] > 0
        assert status["attempts"][1]["lostSteps"] == 0
    finally:
        jobs.delete("patient")
        volcano.schedule(ACTIONS)


@pytest.mark.parametrize("rank", [1, 0])
@pytest.mark.usefixtures("volcano")
def test_a_lost_pod_alone_is_made_anew_in_the_group_and_the_room_of_its_gang(jobs: Jobs, rank: int) -> None:
    name = f"lost-{rank}"
    with training(jobs, name, elsewhere=True, **PLACE):
        before = groups(jobs, name)
        is_replaced(jobs, name, rank)
        assert groups(jobs, name) == before == dict.fromkeys(before, "Running")


@pytest.mark.usefixtures("volcano")
def test_a_spare_is_of_its_gang_s_group_and_so_is_the_pod_that_is_lost_and_made_anew_as_the_next_one(
    jobs: Jobs,
) -> None:
    with training(jobs, "spared", gpus=1, spares=1, **PLACE):
        before = groups(jobs, "spared")
        is_replaced_by_the_spare(jobs, "spared")
        assert groups(jobs, "spared") == before


@pytest.mark.usefixtures("volcano")
def test_the_pod_of_a_lost_node_is_made_anew_while_the_old_one_is_still_counted(jobs: Jobs) -> None:
    with training(jobs, "cut", **PLACE):
        before = newest(jobs, "cut")
        with losing_a_node(jobs, "cut") as rank:
            goes_on(jobs, "cut", rank, before=before)


def test_where_another_job_takes_the_room_of_a_lost_pod_its_gang_goes_back_to_the_queue(
    jobs: Jobs, hold: Callable[..., None]
) -> None:
    with training(jobs, "robbed", standby=10, **PLACE):
        hold("robber", nodes=1, queuePriorityClassName="production")
        wait_for_phase(jobs, "robber", "Queued")
        is_replaced_in_vain(jobs, "robbed", 1)
        wait_for_run(jobs, "robber")
        wait_for_phase(jobs, "robbed", "Queued")


def test_where_no_queue_holds_a_gang_back_it_takes_no_node_until_it_gets_all(
    jobs: Jobs, volcano: Volcano, hold: Callable[..., None]
) -> None:
    volcano.schedule("allocate, backfill")
    try:
        hold("running")
        wait_for_run(jobs, "running")
        hold("big", queue="default", placementTimeoutSeconds=10)
        status = jobs.wait("big", "its timeout", lambda status: status.get("reason") == "PlacementTimeout")
        assert status["message"].startswith("0 of 2 pods found a node within placementTimeoutSeconds (10)")
        assert status["restarts"]["infrastructure"] == status["restarts"]["application"] == 0
    finally:
        volcano.schedule(ACTIONS)


def test_a_tier_of_hyper_nodes_is_volcanos_to_keep(jobs: Jobs, volcano: Volcano, hold: Callable[..., None]) -> None:
    one, *two = jobs.cluster.nodes
    leaves = [hyper_node("leaf-a", one), hyper_node("leaf-b", *two)]
    jobs.cluster.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": leaves}))
    volcano.schedule(ACTIONS, "network-topology-aware")
    try:
        hold("narrow", queue="default", topology={"requiredKey": "leaf"})
        status = wait_for_run(jobs, "narrow")
        assert sorted(status["attempts"][0]["nodeNames"]) == sorted(two)
        jobs.delete("narrow")
        hold("wide", nodes=3, queue="default", topology={"requiredKey": "leaf"}, placementTimeoutSeconds=10)
        status = jobs.wait("wide", "its timeout", lambda status: status.get("reason") == "PlacementTimeout")
        assert status["message"].startswith("0 of 3 pods")
        jobs.delete("wide")
        with training(jobs, "lost", gang="Volcano", topology={"requiredKey": "leaf"}):
            before = newest(jobs, "lost")
            kill(jobs, "lost", 1)
            goes_on(jobs, "lost", 1, before=before, nodes=set(two))
    finally:
        volcano.schedule(ACTIONS)
        jobs.cluster.kubectl("delete", "hypernode", "leaf-a", "leaf-b")


def hyper_node(name: str, *nodes: str) -> dict[str, object]:
    """Nodes that belong together in the tier `leaf`."""
    members = [{"type": "Node", "selector": {"exactMatch": {"name": node}}} for node in nodes]
    spec = {"tier": 1, "tierName": "leaf", "members": members}
    return {"apiVersion": "topology.volcano.sh/v1alpha1", "kind": "HyperNode", "metadata": {"name": name}, "spec": spec}
