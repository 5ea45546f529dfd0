"""Broken GPUs against a real API server: what is cordoned, remembered and believed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from gangs import JOBS, Gang
from gpu_nodes import NODES, annotation, gpu_nodes, node
from processes import Api

from oarlock_local.patience import eventually

pytestmark = pytest.mark.cluster


@pytest.fixture
def nodes(with_operator: Api) -> Iterator[list[str]]:
    """Six nodes with GPUs, which no kubelet stands behind."""
    with gpu_nodes(with_operator) as names:
        yield names


def running(api: Api, nodes: list[str], **spec: Any) -> Gang:
    gang = Gang(api, **spec)
    gang.run(nodes=(nodes[0], nodes[1]))
    return gang


def attempt(gang: Gang, number: int) -> dict[str, Any]:
    eventually(lambda: gang.status.get("attempt") == number or None, f"attempt {number}")
    return gang.status


def test_a_broken_gpu_cordons_its_node_with_its_evidence_until_a_person_uncordons_it(
    with_operator: Api, nodes: list[str]
) -> None:
    gang = running(with_operator, nodes)
    gang.end("1-1", 80, gang.report("1-1", 80, xid=79, gpu="GPU-a"))
    eventually(lambda: node(with_operator, nodes[1])["spec"].get("unschedulable"), "the cordon")
    mark = annotation(with_operator, nodes[1], "cordoned")
    assert (mark["job"], mark["attempt"]) == (f"default/{gang.name}", 1)
    assert "GPU 5 (GPU-a, serial 165) XID 79" in mark["reason"]
    fault = gang.status["lastFault"]
    assert (fault["gpu"]["uuid"], fault["xid"], fault["verdict"]) == ("GPU-a", 79, "ReplaceNode")
    assert [entry["name"] for entry in gang.status["cordonedNodes"]] == [nodes[1]]
    eventually(lambda: "NodeCordoned" in gang.events() or None, "the job's Event")
    path = f"/api/v1/namespaces/default/events?fieldSelector=involvedObject.kind=Node,involvedObject.name={nodes[1]}"

    def told() -> list[dict[str, Any]]:
        return [event for event in with_operator.call("GET", path)["items"] if "GPU-a" in event["message"]]

    assert eventually(told, "the node's Event")[0]["reason"] == "NodeCordoned"
    with_operator.merge(f"{NODES}/{nodes[1]}", {"spec": {"unschedulable": None}})
    eventually(lambda: annotation(with_operator, nodes[1], "cordoned") is None or None, "the mark to go")


def test_a_gpu_that_another_job_met_is_out_at_its_second_fault(with_operator: Api, nodes: list[str]) -> None:
    first = running(with_operator, nodes)
    first.end("1-1", 81, first.report("1-1", 81, xid=31, gpu="GPU-b"))
    attempt(first, 2)
    first.remove("1-0")  # all have had their say
    strikes = eventually(lambda: annotation(with_operator, nodes[1], "gpu-strikes"), "the strike")
    assert [strike["gpu"] for strike in strikes] == ["GPU-b"]
    assert not node(with_operator, nodes[1])["spec"].get("unschedulable"), "the first one is free"
    second = running(with_operator, nodes)
    second.end("1-1", 81, second.report("1-1", 81, xid=13, gpu="GPU-b"))
    attempt(second, 2)
    second.remove("1-0")
    eventually(lambda: node(with_operator, nodes[1])["spec"].get("unschedulable"), "the cordon")
    assert second.status["lastFault"]["verdict"] == "ReplaceNode"
    eventually(lambda: len(annotation(with_operator, nodes[1], "gpu-strikes")) == 2 or None, "its strike")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        pytest.param({"attempt": 7}, "another attempt", id="of another attempt"),
        pytest.param({"pod_uid": "another"}, "another pod", id="of another pod"),
        pytest.param({"rank": 0}, "another rank", id="of another rank"),
    ],
)
def test_a_report_that_is_not_the_pods_own_cordons_nothing(
    with_operator: Api, nodes: list[str], changes: dict[str, Any], why: str
) -> None:
    gang = running(with_operator, nodes)
    gang.end("1-1", 80, gang.report("1-1", 80, xid=79, gpu="GPU-c", **changes))
    status = attempt(gang, 2)
    assert "gpu" not in status["lastFault"], why
    assert "xid" not in status["lastFault"]
    assert "GPU-c" not in json.dumps(status), "what is not believed is shown to nobody"
    assert not any(node(with_operator, name)["spec"].get("unschedulable") for name in nodes)


def test_a_report_cannot_name_another_node(with_operator: Api, nodes: list[str]) -> None:
    gang = running(with_operator, nodes)
    said = json.loads(gang.report("1-1", 80, xid=79, gpu="GPU-d"))
    forged = {**said, "node": nodes[3], "nodeName": nodes[3], "summary": f"node {nodes[3]} is broken"}
    gang.end("1-1", 80, json.dumps(forged))
    eventually(lambda: node(with_operator, nodes[1])["spec"].get("unschedulable"), "the cordon")
    assert not node(with_operator, nodes[3])["spec"].get("unschedulable")


def test_a_gang_that_waits_takes_the_node_that_a_person_gives_back(with_operator: Api, nodes: list[str]) -> None:
    for other in with_operator.call("GET", JOBS)["items"]:
        # Gangs without kubelets drain for ever, and might take what is free.
        with_operator.call("DELETE", f"{JOBS}/{other['metadata']['name']}")
    gang = running(with_operator, nodes, scheduling={})
    gang.end("1-1", 80, gang.report("1-1", 80, xid=79, gpu="GPU-e"))
    eventually(lambda: node(with_operator, nodes[1])["spec"].get("unschedulable"), "the cordon")
    gang.remove("1-0")
    # Only these two have room for pods at all.
    for name in nodes[:2]:
        with_operator.merge(f"{NODES}/{name}/status", {"status": {"allocatable": {"pods": "110"}}})
    eventually(lambda: gang.condition("Scheduled")["reason"] == "NotEnoughHealthyNodes" or None, "one of two places")
    eventually(lambda: (gang.status.get("message") or "").startswith(f"avoided: {nodes[1]}"), "the same words first")
    assert gang.status["attempt"] == 2
    with_operator.merge(f"{NODES}/{nodes[1]}", {"spec": {"unschedulable": None}})
    eventually(lambda: gang.status["attempt"] == 3 or None, "the decision")
    assert [one.get("endReason") for one in gang.status["attempts"]] == ["GPUFault", "NodeReturned", None]
    assert gang.status["restarts"]["infrastructure"] == 1, "it costs no budget"
