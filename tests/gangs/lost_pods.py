"""Gangs whose lost pods are made anew one by one, on nodes that a gang system gives out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from oarlock_api.contract.names import Label, pod_name
from oarlock_local import patience
from tests.e2e.jobs import ENDLESS, Jobs

ELSEWHERE = {"name": "elsewhere", "when": {"exitCodes": [137]}, "action": "AvoidNode"}
"""A rule: what is killed is made anew on another node."""


@contextmanager
def training(
    jobs: Jobs,
    name: str,
    *,
    elsewhere: bool = False,
    standby: int = 300,
    gpus: int = 2,
    spares: int = 0,
    **scheduling: Any,
) -> Iterator[None]:
    """A gang of two nodes with two GPUs each that trains; deleted after the block. One node of three is left over."""
    recovery = {"inPlace": "Auto", "standbySeconds": standby, "rules": [ELSEWHERE] if elsewhere else []}
    jobs.apply(name, **ENDLESS, gpusPerNode=gpus, spares=spares, recovery=recovery, scheduling=scheduling)
    try:
        jobs.wait_for_checkpoint_of(name, 1)
        yield
    finally:
        jobs.delete(name)


def newest(jobs: Jobs, name: str) -> dict[int, dict[str, Any]]:
    """Rank -> its newest pod."""
    found = jobs.cluster.kubectl("get", "pods", "-l", f"oarlock.dev/job={name}", "-o", "json")
    pods: list[dict[str, Any]] = json.loads(found)["items"]
    pods.sort(key=lambda pod: int(pod["metadata"]["labels"].get(Label.INCARNATION, 1)))
    return {int(pod["metadata"]["labels"][Label.RANK]): pod for pod in pods}


def kill(jobs: Jobs, name: str, rank: int) -> None:
    """Kill the newest pod of that rank with its agent."""
    jobs.cluster.fault("kill-container", f"default/{newest(jobs, name)[rank]['metadata']['name']}")


@contextmanager
def losing_a_node(jobs: Jobs, name: str) -> Iterator[int]:
    """Nobody hears from one of its nodes for the length of the block, which is not the operator's: the rank there."""
    home = jobs.operator()["spec"]["nodeName"]
    nodes = {rank: pod["spec"]["nodeName"] for rank, pod in newest(jobs, name).items()}
    rank = next(rank for rank, node in nodes.items() if node != home)
    jobs.cluster.fault("cut", nodes[rank])
    try:
        yield rank
    finally:
        jobs.cluster.fault("heal", nodes[rank])
        jobs.cluster.kubectl("wait", "--for=condition=Ready", f"node/{nodes[rank]}", patience.KUBECTL)


def is_replaced_in_vain(jobs: Jobs, name: str, rank: int) -> None:
    """Kill that pod: it alone is made anew, gets no place while the other stands by, and all are made anew."""
    kill(jobs, name, rank)
    status = jobs.wait(name, "the next attempt", lambda status: status["attempt"] == 2)
    assert jobs.events(name, "PodReplaced")
    assert (status["attempts"][0]["incarnation"], status["restarts"]["application"]) == (2, 1)


def is_replaced(jobs: Jobs, name: str, rank: int) -> None:
    """Kill that pod, which has a rule to go elsewhere: it alone is made anew there, and the gang saves again."""
    before = newest(jobs, name)
    kill(jobs, name, rank)
    goes_on(jobs, name, rank, before=before)


def goes_on(
    jobs: Jobs, name: str, rank: int, *, before: dict[int, dict[str, Any]], nodes: set[str] | None = None
) -> None:
    """The pod of that rank alone is made anew, on one of these nodes, else on one that the gang had not; it saves again."""
    nodes = nodes or set(jobs.cluster.nodes) - {pod["spec"]["nodeName"] for pod in before.values()}
    status = jobs.wait(
        name, "the round after it", lambda status: status.get("round") == 2 and "stage" not in status["recovery"]
    )
    assert (status["attempt"], status["rounds"][-1]["rung"], status["rounds"][-1]["rank"]) == (1, "ReplacePod", rank)
    after = newest(jobs, name)
    assert after[1 - rank]["metadata"]["uid"] == before[1 - rank]["metadata"]["uid"]
    assert after[rank]["metadata"]["name"] == pod_name(name, 1, rank, 2)
    assert after[rank]["spec"]["nodeName"] in nodes
    saved = status["latestCheckpoint"]["step"]
    status = jobs.wait(name, "a checkpoint", lambda status: status["latestCheckpoint"]["step"] > saved)
    assert status["attempt"] == 1


def is_a_new_attempt(jobs: Jobs, name: str) -> None:
    """What was lost makes all pods anew at once, and none by itself before."""
    status = jobs.wait(name, "the next attempt", lambda status: status["attempt"] == 2)
    assert not jobs.events(name, "PodReplaced")
    assert status["attempts"][0].get("incarnation", 1) == 1


def is_replaced_by_the_spare(jobs: Jobs, name: str) -> None:
    """Kill pod 1: pod 2, the spare, trains in its place, and the new pod 1 is the next spare."""
    jobs.wait(name, "the spare", lambda status: (status["ranks"].get("spares"), status.get("standby")) == (1, [2]))
    before = newest(jobs, name)
    kill(jobs, name, 1)
    status = jobs.wait(
        name, "the next spare", lambda status: (status["ranks"].get("spares"), status.get("standby")) == (1, [1])
    )
    assert (status["attempt"], status["round"], status["rounds"][-1]["rung"]) == (1, 2, "ReplacePod")
    after = newest(jobs, name)
    assert after[1]["metadata"]["name"] == pod_name(name, 1, 1, 2)
    assert all(after[rank]["metadata"]["uid"] == before[rank]["metadata"]["uid"] for rank in (0, 2))
