"""Every kind of fault on real nodes: what it costs, whom it blames, and that training goes on from a checkpoint.

The tests with lost nodes have jobs of their own; the others share one gang, which each of them finds in training and
leaves in training.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from oarlock_api.contract.exit_codes import ExitCode
from oarlock_api.contract.history import StoryType, find_stacks, read_story
from oarlock_local.cluster import Cluster
from oarlock_local.demo.install import NAMESPACE
from tests.e2e.jobs import Jobs

pytestmark = [pytest.mark.nodes, pytest.mark.timeout(400)]

Status = dict[str, Any]
MENDING = {"cut": "heal", "freeze-kubelet": "thaw-kubelet"}
GANG = "steady"
EVERY = 20
"""Steps between checkpoints."""
SMALL: dict[str, Any] = {"steps": 1_000_000, "every": EVERY, "gpusPerNode": 1}
"""Two of these fit on the cluster side by side, and none of them ends by itself."""


def operator(cluster: Cluster) -> dict[str, Any]:
    """The operator's pod."""
    pods: list[dict[str, Any]] = json.loads(cluster.kubectl("get", "pods", "-n", NAMESPACE, "-o", "json"))["items"]
    assert len(pods) == 1
    return pods[0]


# Lost nodes


@pytest.fixture
def node(local_cluster: Cluster) -> str:
    """A node that can be lost without the operator."""
    home = operator(local_cluster)["spec"]["nodeName"]
    return next(name for name in local_cluster.nodes if name != home)


@pytest.fixture
def near(jobs: Jobs, node: str) -> Iterator[Callable[..., tuple[str, str]]]:
    """Starts a gang of two, and a job of one that needs nobody to go on, with a pod each on that node."""
    started: list[str] = []
    third = next(name for name in jobs.cluster.nodes if name not in (node, operator(jobs.cluster)["spec"]["nodeName"]))
    others = [name for name in jobs.cluster.nodes if name != node]

    def start(prefix: str, **recovery: int) -> tuple[str, str]:
        gang, lone = f"{prefix}-gang", f"{prefix}-lone"
        for name, nodes, closed in (lone, 1, others), (gang, 2, [third]):
            started.append(name)
            with cordoned(jobs.cluster, closed):
                jobs.apply(name, nodes=nodes, recovery=recovery, **SMALL)
                jobs.wait(name, "its place", lambda _, name=name, nodes=nodes: len(jobs.nodes(name)) == nodes)
            assert node in jobs.nodes(name)
        for name in started:
            jobs.wait_for_checkpoint_of(name, 1)
        return gang, lone

    yield start
    jobs.delete(*started)


@contextmanager
def cordoned(cluster: Cluster, nodes: list[str]) -> Iterator[None]:
    """A job that is placed meanwhile waits for the other nodes, full or not ready as they may be for a moment."""
    cluster.kubectl("cordon", *nodes)
    try:
        yield
    finally:
        cluster.kubectl("uncordon", *nodes)


@contextmanager
def struck(cluster: Cluster, fault: str, node: str) -> Iterator[None]:
    """A node with a fault, which is mended at the end of the block."""
    cluster.fault(fault, node)
    try:
        yield
    finally:
        cluster.fault(MENDING[fault], node)
        cluster.kubectl("wait", "--for=condition=Ready", f"node/{node}", "--timeout=60s")


def assert_trains_without(jobs: Jobs, name: str, node: str) -> None:
    status = jobs.wait_for_checkpoint_of(name, 2)
    first, second = status["attempts"]
    assert second["reason"] == "NodeLost"
    assert second["resumedFromStep"] > 0
    assert second["removedNodeNames"] == [node]
    assert node not in second["nodeNames"]
    assert len(second["nodeNames"]) == len(first["nodeNames"])
    assert (status["lastFault"]["class"], status["lastFault"]["nodeName"]) == ("NodeLost", node)
    assert [(avoided["name"], avoided["strict"]) for avoided in status["avoidedNodes"]] == [(node, False)]
    assert (status["restarts"]["application"], status["restarts"]["infrastructure"]) == (0, 1)
    assert len(jobs.events(name, "NodeLost")) == 1


def assert_first_attempt_is_fenced(jobs: Jobs, name: str) -> None:
    """Its agent ran on, unheard, and left at its next checkpoint, because the output is another attempt's by now."""
    told = jobs.output / name / ".oarlock/reports/1-0.json"
    jobs.wait(name, "the end of the fenced attempt", lambda _: told.exists())
    assert json.loads(told.read_text())["code"] == ExitCode.FENCED
    resumed = jobs.status(name)["attempts"][1]["resumedFromStep"]
    # One may slip in while the fence is being raised; nobody resumes from it.
    assert len([step for step, attempt in jobs.checkpoints(name) if attempt == 1 and step > resumed]) <= 1


def assert_no_loss_changed(jobs: Jobs, name: str) -> None:
    """What was done by several attempts came out the same each time."""
    losses: dict[int, float] = {}
    for (_, step), loss in jobs.losses(name).items():
        assert losses.setdefault(step, loss) == loss, step


def test_a_node_that_is_cut_off_is_left_without_waiting_for_it_and_its_pods_cannot_write(
    jobs: Jobs, node: str, near: Callable[..., tuple[str, str]]
) -> None:
    gang, lone = near("cut", teardownSeconds=5)
    with struck(jobs.cluster, "cut", node):
        for name in gang, lone:
            assert_trains_without(jobs, name, node)
        for name in gang, lone:
            jobs.wait(name, "the removal of the stuck pod", lambda _, name=name: jobs.events(name, "PodForceDeleted"))
            jobs.wait(name, "its end", lambda status: not status["ranks"]["terminating"])
            assert {pod.rpartition("-")[0] for pod in jobs.pods(name)} == {f"pod/{name}-2"}
            created = jobs.status(name)["attempts"][1]["createdTime"]
            assert created <= jobs.events(name, "PodForceDeleted")[0]["firstTimestamp"]
        assert_first_attempt_is_fenced(jobs, lone)
    for name in gang, lone:
        healed = jobs.status(name)["latestCheckpoint"]["step"]
        after = jobs.wait(name, "progress", lambda status, healed=healed: status["latestCheckpoint"]["step"] > healed)
        assert after["attempt"] == 2
        assert_no_loss_changed(jobs, name)


def test_a_node_whose_kubelet_is_frozen_is_trained_on_until_kubernetes_takes_the_pods_away(
    jobs: Jobs, node: str, near: Callable[..., tuple[str, str]]
) -> None:
    def degraded(status: Status) -> str:
        found = next(c for c in status["conditions"] if c["type"] == "Degraded")
        return found["reason"] if found["status"] == "True" else ""

    gang, lone = near("frozen")
    with struck(jobs.cluster, "freeze-kubelet", node):
        for name in gang, lone:
            status = jobs.wait(name, "doubt", degraded)
            assert (degraded(status), status["attempt"], status["phase"]) == ("NodeNotReady", 1, "Running")
            seen = status["progress"]["step"]
            status = jobs.wait(name, "progress in doubt", lambda status, seen=seen: status["progress"]["step"] > seen)
            assert status["attempt"] == 1
        for name in gang, lone:
            assert_trains_without(jobs, name, node)
            assert degraded(jobs.status(name)) == "", "whoever has left the node does not mind it"
        assert_first_attempt_is_fenced(jobs, lone)
    for name in gang, lone:
        assert_no_loss_changed(jobs, name)


# Faults of a gang on nodes that work


@pytest.fixture(scope="module")
def gang_name(jobs: Jobs) -> Iterator[str]:
    yield GANG
    jobs.delete(GANG)


@pytest.fixture
def gang(jobs: Jobs, gang_name: str) -> Status:
    """The status of a gang of two nodes that trains: the one that the last test left, or a new one."""
    if jobs.phase(gang_name) != "Running":
        jobs.delete(gang_name)
        jobs.apply(gang_name, recovery={"hangSeconds": 15, "backoffSeconds": 1}, **SMALL)
    return jobs.wait_for_checkpoint_of(gang_name, 1)


def trains_again(jobs: Jobs, before: Status) -> Status:
    """The status once the gang trains in the next attempt, from a checkpoint that it had."""
    after = jobs.wait_for_checkpoint_of(GANG, before["attempt"] + 1)
    assert after["attempt"] == before["attempt"] + 1
    assert after["attempts"][-1]["number"] == after["attempt"]
    assert after["attempts"][-1]["resumedFromStep"] >= before["latestCheckpoint"]["step"]
    assert_no_loss_changed(jobs, GANG)
    return after


def restarts(status: Status) -> tuple[int, int]:
    """What application and infrastructure are charged with."""
    return status["restarts"]["application"], status["restarts"]["infrastructure"]


def assert_saved_and_left(jobs: Jobs, after: Status, reasons: set[str]) -> None:
    """All that was done was saved before the pods left, and no budget was charged for it."""
    attempt = after["attempts"][-1]
    assert attempt["reason"] in reasons
    assert attempt["lostSteps"] == 0
    assert after["lastFault"]["class"] == "Requested"
    assert restarts(after) == (0, 0)
    assert after["restarts"]["voluntary"] == 1, "the checkpoint since the last one has forgotten the others"
    assert any(f"Attempt {after['attempt']} starts" in e["message"] for e in jobs.events(GANG, attempt["reason"]))


def test_a_pod_that_is_deleted_by_force_costs_one_infrastructure_restart(jobs: Jobs, gang: Status) -> None:
    jobs.cluster.kubectl("delete", "pod", f"{GANG}-{gang['attempt']}-1", "--force", "--grace-period=0")
    after = trains_again(jobs, gang)
    assert after["attempts"][-1]["reason"] == "PodDisappeared"
    assert (after["lastFault"]["class"], after["lastFault"]["rank"]) == ("PeerLost", 1)
    assert restarts(after) == (0, 1)
    assert after["avoidedNodes"] == []
    assert jobs.events(GANG, "PodDisappeared")


def test_a_pod_that_is_deleted_by_hand_saves_first_and_costs_no_budget(jobs: Jobs, gang: Status) -> None:
    jobs.cluster.kubectl("delete", "pod", f"{GANG}-{gang['attempt']}-1", "--wait=false")
    assert_saved_and_left(jobs, trains_again(jobs, gang), {"LeftOnRequest"})


def test_an_evicted_pod_saves_first_and_costs_no_budget(jobs: Jobs, gang: Status) -> None:
    jobs.evict(f"{GANG}-{gang['attempt']}-0")
    assert_saved_and_left(jobs, trains_again(jobs, gang), {"Evicted", "LeftOnRequest"})


def test_a_rank_that_hangs_is_ended_by_its_agent_which_keeps_the_stacks_of_all_ranks(jobs: Jobs, gang: Status) -> None:
    pod = f"{GANG}-{gang['attempt']}-1"
    jobs.signal_rank(pod, 1, "STOP")
    while not 0 < jobs.agent(pod)["step"] % EVERY < EVERY - 1:
        # In a checkpoint, or about to begin one: those may take longer than a step.
        jobs.signal_rank(pod, 1, "CONT")
        jobs.signal_rank(pod, 1, "STOP")
    after = trains_again(jobs, gang)
    assert after["attempts"][-1]["reason"] == "Hang"
    assert after["lastFault"]["class"] == "Hang"
    assert restarts(after) == (1, 0)
    for pod_rank in 0, 1:
        kept = [path.read_text() for path in find_stacks(jobs.output / GANG) if f"-{pod_rank}-2" in path.name]
        assert f"rank {pod_rank}:\n" in kept[-1]
        assert "File " in kept[-1]
    decisions = {line.attempt: line for line in read_story(jobs.output / GANG) if line.type == StoryType.DECISION}
    assert decisions[gang["attempt"]].reason == "Hang"
    report = jobs.output / GANG / f".oarlock/reports/{gang['attempt']}-1.json"
    told = json.loads(report.read_text())
    assert (told["code"], told["firstErrorRank"]) == (ExitCode.HANG, 1)
    assert "stopped by a signal" in told["summary"]


def test_an_operator_that_is_killed_in_a_recovery_leads_it_to_the_same_end_without_another_attempt(
    jobs: Jobs, gang: Status
) -> None:
    victim = operator(jobs.cluster)
    jobs.signal_rank(f"{GANG}-{gang['attempt']}-1", 1, "KILL")
    status = jobs.wait(GANG, "the next attempt", lambda status: status["attempt"] > gang["attempt"])
    assert "stage" in status["recovery"]
    jobs.cluster.fault("kill-container", f"{NAMESPACE}/{victim['metadata']['name']}")
    after = trains_again(jobs, gang)
    assert after["attempts"][-1]["reason"] == "ApplicationError"
    assert restarts(after) == (1, 0)
    assert after["restartCount"] == gang["restartCount"] + 1
    now = operator(jobs.cluster)
    assert now["metadata"]["uid"] == victim["metadata"]["uid"]
    killed = [status["containerStatuses"][0]["restartCount"] for status in (victim["status"], now["status"])]
    assert killed[1] == killed[0] + 1


def test_a_suspended_gang_saves_and_goes_on_from_there_when_it_is_resumed(jobs: Jobs, gang: Status) -> None:
    jobs.change(GANG, suspend=True)
    suspended = jobs.wait(GANG, "suspension", lambda status: status["phase"] == "Suspended")
    condition = next(c for c in suspended["conditions"] if c["type"] == "Suspended")
    assert condition["status"] == "True"
    saved = suspended["latestCheckpoint"]["step"]
    assert saved == max(jobs.checkpoints(GANG))[0] == max(jobs.losses(GANG))[1]
    assert saved >= gang["progress"]["step"]
    jobs.change(GANG, suspend=False)
    after = trains_again(jobs, gang)
    assert (after["attempts"][-1]["reason"], after["attempts"][-1]["resumedFromStep"]) == ("Resumed", saved)
    assert after["attempts"][-1]["lostSteps"] == 0
    assert after["restartCount"] == gang["restartCount"]
