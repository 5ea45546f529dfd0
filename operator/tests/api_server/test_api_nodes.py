"""Lost nodes against a real API server: noticed by the operator's own watch, long before the pods are."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from gangs import JOBS, PODS, Gang
from processes import Api

from oarlock_local.patience import eventually

pytestmark = pytest.mark.cluster

NODES = "/api/v1/nodes"


@pytest.fixture
def two_nodes(with_operator: Api) -> Iterator[tuple[str, str]]:
    """Nodes that no kubelet stands behind; the tests say how they are."""
    first, second = (f"node-{uuid.uuid4().hex[:6]}" for _ in range(2))
    for name in (first, second):
        with_operator.call("POST", NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
        tell(with_operator, name, "True")
    yield first, second
    for name in (first, second):
        if with_operator.find(f"{NODES}/{name}"):
            with_operator.call("DELETE", f"{NODES}/{name}")


def tell(api: Api, name: str, ready: str) -> None:
    """What a kubelet, or for it the node controller, says of a node."""
    now = "2026-01-01T00:00:00Z"
    condition = {
        "type": "Ready",
        "status": ready,
        "reason": "Test",
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
    }
    api.merge(f"{NODES}/{name}/status", {"status": {"conditions": [condition]}})


def affinity(pod: dict[str, Any]) -> list[Any]:
    found = pod["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    return [field["values"] for term in found for field in term["preference"]["matchFields"]]


def test_a_deleted_node_starts_the_gang_elsewhere_before_its_pods_are_collected(
    with_operator: Api, two_nodes: tuple[str, str]
) -> None:
    gang = Gang(with_operator)
    gang.run(nodes=two_nodes)
    with_operator.call("DELETE", f"{NODES}/{two_nodes[1]}")
    eventually(lambda: gang.status.get("attempt") == 2 or None, "the decision")
    status = gang.status
    assert status["attempts"][-1]["reason"] == "NodeLost"
    assert status["lastFault"]["nodeName"] == two_nodes[1]
    gang.remove("1-0")
    eventually(lambda: {"2-0", "2-1"} <= set(gang.pods()) or None, "the next gang")
    assert affinity(gang.pods()["2-0"]) == [[two_nodes[1]]]
    assert "1-1" in gang.pods(), "nobody waits for a pod that nobody can stop"


@pytest.mark.parametrize("ready", ["False", "Unknown"])
def test_a_node_that_is_not_ready_and_whose_pod_does_not_answer_is_lost(
    with_operator: Api, two_nodes: tuple[str, str], ready: str
) -> None:
    gang = Gang(with_operator)
    gang.run(nodes=two_nodes)
    tell(with_operator, two_nodes[0], ready)
    eventually(lambda: gang.status.get("attempt") == 2 or None, "the decision")
    assert gang.status["lastFault"]["class"] == "NodeLost"
    eventually(
        lambda: {p["metadata"].get("deletionGracePeriodSeconds") for p in gang.pods().values()} == {5}, "the deletion"
    )


def test_a_pod_that_cannot_go_is_deleted_by_force_once_its_node_is_gone(
    with_operator: Api, two_nodes: tuple[str, str]
) -> None:
    recovery = {"teardownSeconds": 1, "faultGracePeriodSeconds": 1}
    gang = Gang(with_operator, recovery=recovery)
    gang.run(nodes=two_nodes)
    with_operator.call("DELETE", f"{NODES}/{two_nodes[1]}")
    eventually(lambda: "1-1" not in gang.pods() or None, "the stuck pod to go")
    assert with_operator.find(f"{PODS}/{gang.name}-1-0"), "its node lives: its kubelet's own affair"
    eventually(lambda: "PodForceDeleted" in gang.events() or None, "the Event")


def test_a_gang_moves_off_a_node_that_a_person_cordons_where_another_has_room(
    with_operator: Api, two_nodes: tuple[str, str]
) -> None:
    for other in with_operator.call("GET", JOBS)["items"]:
        # Gangs without kubelets drain for ever, and might take what is spare.
        with_operator.call("DELETE", f"{JOBS}/{other['metadata']['name']}")
    spare = f"{two_nodes[0]}-spare"
    with_operator.call("POST", NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": spare}})
    tell(with_operator, spare, "True")
    with_operator.merge(f"{NODES}/{spare}/status", {"status": {"allocatable": {"nvidia.com/gpu": "2", "pods": "110"}}})
    eventually(
        lambda: not with_operator.call("GET", f"{NODES}/{spare}")["spec"].get("taints"), "the spare to take pods"
    )
    gang = Gang(with_operator)
    gang.run(nodes=two_nodes)
    eventually(lambda: gang.status.get("recovery", {}).get("stage") == "FirstStep" or None, "the gang to come up")
    # What the agent's word does that it trains: there is none here.
    with_operator.merge(f"{JOBS}/{gang.name}/status", {"status": {"recovery": {"stage": None}}})
    with_operator.merge(f"{NODES}/{two_nodes[1]}", {"spec": {"unschedulable": True}})
    eventually(lambda: gang.status.get("attempt") == 2 or None, "the decision")
    status = gang.status
    assert (status["attempts"][-1]["reason"], status["restarts"]["voluntary"]) == ("NodeMarked", 1)
    eventually(
        lambda: {p["metadata"].get("deletionGracePeriodSeconds") for p in gang.pods().values()} == {300}, "the deletion"
    )
    with_operator.call("DELETE", f"{NODES}/{spare}")
