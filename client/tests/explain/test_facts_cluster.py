"""What is asked of a cluster, as whom, and what becomes of what may not be read."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote

import pytest
from situations import JOB, job, node, pod, unplaced

from oarlock.errors import ForbiddenError, NoClusterError, NotFoundError, OarlockError, UnknownCallerError
from oarlock.explain import explain
from oarlock.facts.cluster import from_cluster

NOW = datetime(2026, 11, 23, 11, tzinfo=UTC)
CORE = "/api/v1/namespaces/team"
JOB_PATH = f"/apis/oarlock.dev/v1alpha1/namespaces/team/trainingjobs/{JOB}"
PODS = f"{CORE}/pods?labelSelector=oarlock.dev/job={JOB}"


class Server:
    """Answers paths, and remembers which were asked."""

    def __init__(self, answers: Mapping[str, Any]) -> None:
        self.answers = answers
        self.asked: list[str] = []

    def __call__(self, path: str) -> Mapping[str, Any]:
        self.asked.append(path := unquote(path))
        answer = next((found for known, found in self.answers.items() if path.startswith(known)), None)
        if isinstance(answer, OarlockError):
            raise answer
        if answer is None and "?" not in path:
            raise NotFoundError(path)
        return {"items": []} if answer is None else answer


def gather(answers: Mapping[str, Any]) -> tuple[Any, Server]:
    server = Server(answers)
    return from_cluster(server, namespace="team", name=JOB, now=NOW), server


def test_a_gang_of_a_thousand_costs_as_few_requests_as_a_small_one() -> None:
    pods = [pod(rank, node=f"node-{rank}") for rank in range(1000)]
    known, server = gather({JOB_PATH: job("Running"), PODS: {"items": pods}})
    assert len(known.pods) == 1000
    assert len(server.asked) <= 12


def test_what_may_not_be_read_is_said_and_the_rest_is_explained() -> None:
    pods = {"items": [unplaced("0/4 nodes are available: 4 Insufficient nvidia.com/gpu.")]}
    known, _ = gather({JOB_PATH: job(), PODS: pods, "/api/v1/nodes": ForbiddenError("nodes is forbidden")})
    assert [(one.what, one.why) for one in known.missing] == [("nodes", "you may not read it")]
    story = explain(known)
    assert (story.now.cause, [one.what for one in story.unknown]) == ("NotEnoughGPUs", ["nodes"])


GROUPS = "/apis/scheduling.volcano.sh"


@pytest.mark.parametrize(
    "path", [JOB_PATH, PODS, f"{CORE}/events", "/api/v1/nodes", f"{CORE}/persistentvolumeclaims", GROUPS]
)
def test_whom_the_cluster_does_not_know_any_more_is_told_so_and_gets_no_half_of_a_story(path: str) -> None:
    waiting = job()
    waiting["status"] |= {"resolved": {"gang": "Volcano"}}
    waiting["spec"] |= {"output": {"persistentVolumeClaim": {"claimName": "out"}}}
    answers: dict[str, Any] = {JOB_PATH: waiting, PODS: {"items": [unplaced("none")]}}
    with pytest.raises(UnknownCallerError):
        gather(answers | {path: UnknownCallerError("log in again")})


def test_a_job_that_is_not_there_is_no_story() -> None:
    with pytest.raises(NotFoundError):
        gather({})


def test_a_cluster_that_does_not_answer_is_told_as_such() -> None:
    with pytest.raises(NoClusterError):
        gather({"": NoClusterError("nobody answers")})


def test_only_nodes_that_matter_are_kept() -> None:
    nodes = {"items": [node(f"node-{number}") for number in range(20)]}
    pods = {"items": [pod(rank, node=f"node-{rank}") for rank in range(9)]}
    known, server = gather({JOB_PATH: job("Running"), PODS: pods, "/api/v1/nodes": nodes})
    assert {one["metadata"]["name"] for one in known.nodes} == {f"node-{rank}" for rank in range(9)}
    assert sum(path.startswith("/api/v1/nodes") for path in server.asked) == 1


def test_no_secret_is_read_and_no_pod_is_asked() -> None:
    leader = pod(0, node="node-1", phase="Running")
    leader["spec"]["volumes"] = [{"projected": {"sources": [{"secret": {"name": "flux-key"}}]}}]
    _, server = gather({JOB_PATH: job("Running"), PODS: {"items": [leader]}})
    assert not [path for path in server.asked if "/secrets/" in path or "/proxy" in path]


def test_job_json_and_managed_fields_are_left_out() -> None:
    told = pod(0, node="node-1")
    told["metadata"] |= {"managedFields": [{}], "annotations": {"oarlock.dev/job": "x" * 4096, "note": "kept"}}
    known, _ = gather({JOB_PATH: job("Running"), PODS: {"items": [told]}})
    assert known.pods[0]["metadata"]["annotations"] == {"note": "kept"}
    assert "managedFields" not in known.pods[0]["metadata"]
