"""Nodes that are lost under a job: what it costs, whom it blames, and that training goes on from a checkpoint."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from oarlock_api.contract.exit_codes import ExitCode
from oarlock_local import patience
from oarlock_local.cluster import Cluster
from tests.e2e.jobs import SMALL, Jobs

pytestmark = [pytest.mark.nodes, pytest.mark.timeout(400)]

Status = dict[str, Any]
MENDING = {"cut": "heal", "freeze-kubelet": "thaw-kubelet"}


@pytest.fixture
def node(jobs: Jobs) -> str:
    """A node that can be lost without the operator."""
    home = jobs.operator()["spec"]["nodeName"]
    return next(name for name in jobs.cluster.nodes if name != home)


@pytest.fixture
def near(jobs: Jobs, node: str) -> Iterator[Callable[..., None]]:
    """Starts a job, by its name and number of nodes, that has a pod on that node, and trains."""
    started: list[str] = []
    third = next(name for name in jobs.cluster.nodes if name not in (node, jobs.operator()["spec"]["nodeName"]))
    others = [name for name in jobs.cluster.nodes if name != node]

    def start(name: str, *, nodes: int, **recovery: int) -> None:
        started.append(name)
        with cordoned(jobs.cluster, others if nodes == 1 else [third]):
            jobs.apply(name, nodes=nodes, recovery=recovery, **SMALL)
            jobs.wait(name, "its place", lambda _: len(jobs.nodes(name)) == nodes)
        assert node in jobs.nodes(name)
        status = jobs.wait_for_checkpoint_of(name, 1)
        assert status["attempt"] == 1, json.dumps(status["attempts"])

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
        cluster.kubectl("wait", "--for=condition=Ready", f"node/{node}", patience.KUBECTL)


def assert_trains_without(jobs: Jobs, name: str, status: Status, node: str) -> None:
    assert len(status["attempts"]) == 2, json.dumps(status)
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


@pytest.mark.parametrize(
    "nodes", [pytest.param(2, marks=pytest.mark.smoke("outlives a lost node"), id="gang"), pytest.param(1, id="lone")]
)
def test_a_node_that_is_cut_off_is_left_without_waiting_for_it_and_its_pods_cannot_write(
    jobs: Jobs, node: str, near: Callable[..., None], nodes: int
) -> None:
    name = f"cut-{nodes}"
    near(name, nodes=nodes, teardownSeconds=5)
    with struck(jobs.cluster, "cut", node):
        assert_trains_without(jobs, name, jobs.wait_for_checkpoint_of(name, 2), node)
        jobs.wait(name, "the removal of the stuck pod", lambda _: jobs.events(name, "PodForceDeleted"))
        jobs.wait(name, "its end", lambda status: not status["ranks"]["terminating"])
        assert {pod.rpartition("-")[0] for pod in jobs.pods(name)} == {f"pod/{name}-2"}
        created = jobs.status(name)["attempts"][1]["createdTime"]
        assert created <= jobs.events(name, "PodForceDeleted")[0]["firstTimestamp"]
        if nodes == 1:  # of a gang, those that are not cut off end, and the others with them
            assert_first_attempt_is_fenced(jobs, name)
    healed = jobs.status(name)["latestCheckpoint"]["step"]
    after = jobs.wait(name, "progress", lambda status: status["latestCheckpoint"]["step"] > healed)
    assert after["attempt"] == 2
    jobs.assert_no_loss_changed(name)


def test_a_node_whose_kubelet_is_frozen_is_trained_on_until_kubernetes_takes_the_pods_away(
    jobs: Jobs, node: str, near: Callable[..., None]
) -> None:
    def degraded(status: Status) -> str:
        found = next(c for c in status["conditions"] if c["type"] == "Degraded")
        return found["reason"] if found["status"] == "True" else ""

    # A job of one, for nobody else would notice. That gangs go on too: operator/tests/decide/test_decide_nodes.py.
    lone = "frozen-lone"
    near(lone, nodes=1)
    with struck(jobs.cluster, "freeze-kubelet", node):
        status = jobs.wait(lone, "doubt", degraded)
        assert (degraded(status), status["attempt"], status["phase"]) == ("NodeNotReady", 1, "Running")
        seen = status["progress"]["step"]
        status = jobs.wait(lone, "progress in doubt", lambda status: status["progress"]["step"] > seen)
        assert status["attempt"] == 1
        assert_trains_without(jobs, lone, jobs.wait_for_checkpoint_of(lone, 2), node)
        assert degraded(jobs.status(lone)) == "", "whoever has left the node does not mind it"
        assert_first_attempt_is_fenced(jobs, lone)
    jobs.assert_no_loss_changed(lone)
