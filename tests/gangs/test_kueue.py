"""Gangs in a queue of the real Kueue: they wait, come in, are preempted, come back, and leave what they had to others.

The queue has room for one gang of two nodes with two GPUs each (kueue.yaml).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from oarlock_local import patience
from oarlock_local.patience import eventually
from tests.e2e.jobs import Jobs
from tests.gangs.held import holding, tell, wait_for_phase, wait_for_run
from tests.gangs.lost_pods import (
    is_a_new_attempt,
    is_replaced,
    is_replaced_by_the_spare,
    kill,
    losing_a_node,
    newest,
    training,
)

pytestmark = [pytest.mark.nodes, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
QUEUE: dict[str, Any] = {"queue": "small"}
GATE = "kueue.x-k8s.io/admission"


@pytest.fixture
def hold(queues: Jobs) -> Iterator[Callable[..., None]]:
    """Makes jobs in the queue that keep what they get until they are told to end."""
    with holding(queues, **QUEUE) as hold:
        yield hold


def wait_for_use(jobs: Jobs, gpus: int) -> None:
    """Until Kueue counts so many GPUs as taken."""
    path = "jsonpath={.status.flavorsReservation[0].resources[0].total}"

    def counted() -> str:
        return jobs.cluster.kubectl("get", "clusterqueue", "small", "-o", path)

    eventually(lambda: counted() == str(gpus), lambda: f"{gpus} GPUs: Kueue counts {counted()}")


def gates(jobs: Jobs, name: str) -> list[str]:
    path = "jsonpath={.items[*].spec.schedulingGates[*].name}"
    return jobs.cluster.kubectl("get", "pods", "-l", f"oarlock.dev/job={name}", "-o", path).split()


def test_a_gang_waits_for_quota_and_comes_in_when_another_ends(queues: Jobs, hold: Callable[..., None]) -> None:
    hold("first")
    status = wait_for_run(queues, "first")
    assert status["resolved"]["gang"] == "Kueue"
    wait_for_use(queues, 4)
    hold("second")
    wait_for_phase(queues, "second", "Queued")
    status = queues.wait("second", "Kueue's words", lambda status: "quota" in (status.get("message") or ""))
    assert status["message"].startswith("in the queue small: ")
    assert gates(queues, "second").count(GATE) == 2
    tell(queues, "first", "done")
    assert queues.wait_for_end("first")["phase"] == "Succeeded"
    status = wait_for_run(queues, "second")
    assert status["attempts"][0]["stageMilliseconds"]["queue"] > 0
    assert gates(queues, "second") == []
    tell(queues, "second", "done")
    assert queues.wait_for_end("second")["phase"] == "Succeeded"
    wait_for_use(queues, 0)


@pytest.mark.parametrize("in_place", ["Never", "Auto"])
def test_who_is_preempted_saves_waits_and_goes_on_and_no_budget_is_charged(
    queues: Jobs, hold: Callable[..., None], in_place: str
) -> None:
    recovery = {"inPlace": in_place}
    queues.apply("patient", steps=100_000, every=1000, gpusPerNode=1, scheduling=QUEUE, recovery=recovery)
    try:
        queues.wait("patient", "its steps", lambda status: ((status.get("progress") or {}).get("step") or 0) > 0)
        hold("urgent", queuePriorityClassName="production")
        wait_for_run(queues, "urgent")
        status = wait_for_phase(queues, "patient", "Queued")
        assert status["attempt"] == 2
        assert status["attempts"][1]["reason"] == "Evicted"
        assert status["restarts"]["infrastructure"] == status["restarts"]["application"] == 0
        assert status["restarts"]["voluntary"] == 1
        tell(queues, "urgent", "done")
        assert queues.wait_for_end("urgent")["phase"] == "Succeeded"
        status = queues.wait("patient", "its next steps", lambda status: "resumedFromStep" in status["attempts"][1])
        assert status["attempts"][1]["resumedFromStep"] > 0
        assert status["attempts"][1]["lostSteps"] == 0
        assert status["attempts"][1]["stageMilliseconds"]["queue"] > 0
    finally:
        queues.delete("patient")
    wait_for_use(queues, 0)


def test_the_attempt_after_a_failure_gets_the_quota_of_the_one_that_failed(
    queues: Jobs, hold: Callable[..., None]
) -> None:
    hold("clumsy")
    wait_for_run(queues, "clumsy")
    tell(queues, "clumsy", "crash", "1-1")
    status = wait_for_run(queues, "clumsy", 2)
    assert status["attempts"][1]["reason"] == "ApplicationError"
    wait_for_use(queues, 4)
    tell(queues, "clumsy", "done")
    assert queues.wait_for_end("clumsy")["phase"] == "Succeeded"
    wait_for_use(queues, 0)


def workloads(jobs: Jobs) -> str:
    """All Workloads, by their uids."""
    return jobs.cluster.kubectl("get", "workloads", "-o", "jsonpath={.items[*].metadata.uid}")


@pytest.mark.parametrize("rank", [1, 0])
def test_a_lost_pod_alone_is_made_anew_in_the_workload_and_the_quota_of_its_gang_whoever_waits_for_that(
    queues: Jobs, hold: Callable[..., None], rank: int
) -> None:
    name = f"lost-{rank}"
    with training(queues, name, elsewhere=True, **QUEUE):
        hold("waits", nodes=1)
        wait_for_phase(queues, "waits", "Queued")
        before = workloads(queues)
        is_replaced(queues, name, rank)
        assert (workloads(queues), gates(queues, name)) == (before, [])
        assert queues.phase("waits") == "Queued"
        queues.cluster.kubectl("wait", "--for=delete", f"pod/{name}-1-{rank}", patience.KUBECTL)
    wait_for_run(queues, "waits")


def test_a_spare_is_of_its_gang_s_workload_and_so_is_the_pod_that_is_lost_and_made_anew_as_the_next_one(
    queues: Jobs,
) -> None:
    with training(queues, "spared", gpus=1, spares=1, **QUEUE):
        wait_for_use(queues, 3)
        before = workloads(queues)
        is_replaced_by_the_spare(queues, "spared")
        assert (workloads(queues), gates(queues, "spared")) == (before, [])
    wait_for_use(queues, 0)


def test_the_pod_of_a_lost_node_never_fails_so_kueue_takes_none_in_its_place_and_all_are_made_anew(
    queues: Jobs,
) -> None:
    with training(queues, "cut", **QUEUE), losing_a_node(queues, "cut"):
        is_a_new_attempt(queues, "cut")


def test_a_suspended_job_keeps_no_quota_and_no_place(queues: Jobs, hold: Callable[..., None]) -> None:
    hold("running")
    wait_for_run(queues, "running")
    hold("waiting")
    wait_for_phase(queues, "waiting", "Queued")
    queues.change("waiting", suspend=True)
    wait_for_phase(queues, "waiting", "Suspended")
    hold("next")
    wait_for_phase(queues, "next", "Queued")
    queues.change("running", suspend=True)
    wait_for_phase(queues, "running", "Suspended")
    wait_for_run(queues, "next")
    queues.change("waiting", suspend=False)
    wait_for_phase(queues, "waiting", "Queued")
    tell(queues, "next", "done")
    assert queues.wait_for_end("next")["phase"] == "Succeeded"
    wait_for_run(queues, "waiting", 2)
    wait_for_use(queues, 4)


def test_deleted_jobs_leave_nothing_in_the_queue(queues: Jobs, hold: Callable[..., None]) -> None:
    hold("running")
    wait_for_run(queues, "running")
    hold("waiting")
    wait_for_phase(queues, "waiting", "Queued")
    queues.delete("waiting", "running")
    wait_for_use(queues, 0)
    hold("after")
    wait_for_run(queues, "after")


def test_a_queue_that_is_drained_takes_its_gangs_back_and_lets_them_in_again(
    queues: Jobs, hold: Callable[..., None]
) -> None:
    def stop(policy: str) -> None:
        patch = json.dumps({"spec": {"stopPolicy": policy}})
        queues.cluster.kubectl("patch", "clusterqueue", "small", "--type=merge", "-p", patch)

    hold("swept")
    wait_for_run(queues, "swept")
    stop("HoldAndDrain")
    try:
        status = wait_for_phase(queues, "swept", "Queued")
    finally:
        stop("None")
    assert (status["attempt"], status["restarts"]["voluntary"]) == (2, 1)
    wait_for_run(queues, "swept", 2)


def test_the_example_is_let_in(queues: Jobs) -> None:
    example = ROOT / "examples/kueue.yaml"
    queues.cluster.kubectl("apply", "-f", str(example))
    try:
        queues.wait("flux-queued", "its turn", lambda status: status.get("reason") == "Unschedulable")
        path = "jsonpath={.items[0].spec.nodeSelector}"
        pods = ("get", "pods", "-l", "oarlock.dev/job=flux-queued", "-o", path)
        assert "NVIDIA-H100" in queues.cluster.kubectl(*pods), "the pods do not go to the flavor's nodes"
    finally:
        queues.delete("flux-queued")
        queues.cluster.kubectl("delete", "-f", str(example), "--ignore-not-found", "--wait=false")


def in_racks(jobs: Jobs, *racks: str) -> dict[str, str]:
    """Put each node into one of these racks; node -> rack."""
    placed = dict(zip(jobs.cluster.nodes, racks, strict=True))
    for node, rack in placed.items():
        labels = (f"example.com/rack={rack}", "example.com/racked=true")
        jobs.cluster.kubectl("label", "node", node, "--overwrite", *labels)
    return placed


def test_a_required_topology_is_kueues_to_keep(queues: Jobs, hold: Callable[..., None]) -> None:
    racks = in_racks(queues, "a", "b", "b")
    within_a_rack = {"queue": "racks", "topology": {"requiredKey": "example.com/rack"}}
    hold("wide", nodes=3, **within_a_rack)
    queues.wait("wide", "Kueue's words", lambda status: "topology" in (status.get("message") or ""))
    assert queues.phase("wide") == "Queued"
    hold("narrow", **within_a_rack)
    status = wait_for_run(queues, "narrow")
    assert [racks[node] for node in status["attempts"][0]["nodeNames"]] == ["b", "b"]


def test_in_a_topology_of_racks_a_lost_pod_is_made_anew_on_another_node_of_its_rack(queues: Jobs) -> None:
    in_racks(queues, "a", "a", "a")
    with training(queues, "roams", elsewhere=True, queue="cabinets", topology={"requiredKey": "example.com/rack"}):
        is_replaced(queues, "roams", 1)
        assert newest(queues, "roams")[1]["spec"]["nodeSelector"]["example.com/rack"] == "a"


def test_a_topology_down_to_nodes_ties_each_rank_to_its_own_and_its_lost_pod_is_a_new_attempt(queues: Jobs) -> None:
    in_racks(queues, "a", "a", "a")
    with training(queues, "tied", queue="racks", topology={"requiredKey": "example.com/rack"}):
        pod = newest(queues, "tied")[1]["spec"]
        assert pod["nodeSelector"]["kubernetes.io/hostname"] == pod["nodeName"]
        kill(queues, "tied", 1)
        is_a_new_attempt(queues, "tied")
