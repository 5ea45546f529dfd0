"""GPUs that break on real nodes: real trainer, real monitor and binding, a pretended driver under them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from oarlock_local.cluster import Cluster
from tests.e2e.jobs import ENDLESS, Jobs

pytestmark = [pytest.mark.nodes, pytest.mark.timeout(400)]

NAME, SUSPECT, ALONE = "broken", "suspect", "alone"
"""Of several names, because within an hour the operator cordons one node for a job, by its name."""
UNPACED = {**ENDLESS, "pace": 0.0}
"""A pod with a PYTHONPATH of its own runs another program than the site vouches for: no node is cordoned by its word."""


@pytest.fixture
def gang(jobs: Jobs) -> Iterator[dict[str, str]]:
    """A gang of two in training, with a checkpoint; the node of each pod by the pod's name."""
    yield in_training(jobs)
    jobs.delete(NAME)


@pytest.fixture
def rooted(jobs: Jobs, local_cluster: Cluster) -> Iterator[dict[str, str]]:
    """The same, of a gang that has nowhere else to go, however long an ended pod takes to make room on its node.

    Until the test uncordons the third node.
    """
    local_cluster.kubectl("cordon", local_cluster.nodes[0])
    yield in_training(jobs, SUSPECT)
    jobs.delete(SUSPECT)


@pytest.fixture
def mended(local_cluster: Cluster) -> Iterator[None]:
    """What a test has broken is whole again for the next one: GPUs, cordons, and the count of both."""
    yield
    for node in local_cluster.nodes:
        local_cluster.fault("mend-gpu", node)
        local_cluster.kubectl("uncordon", node)
        local_cluster.kubectl("annotate", "node", node, "oarlock.dev/cordoned-", "oarlock.dev/gpu-strikes-")


@pytest.fixture
def in_rounds(jobs: Jobs) -> Iterator[dict[str, str]]:
    """The same, of a gang whose lost pods are made anew one by one."""
    yield in_training(jobs, ALONE, recovery={"inPlace": "Auto"})
    jobs.delete(ALONE)


def in_training(jobs: Jobs, name: str = NAME, **spec: Any) -> dict[str, str]:
    jobs.apply(name, **UNPACED, gpusPerNode=2, **spec)
    jobs.wait_for_checkpoint_of(name, 1)
    return nodes_of(jobs, name)


def nodes_of(jobs: Jobs, name: str = NAME) -> dict[str, str]:
    path = '{range .items[*]}{.metadata.name} {.spec.nodeName}{"\\n"}{end}'
    found = jobs.cluster.kubectl("get", "pods", "-l", f"oarlock.dev/job={name}", "-o", f"jsonpath={path}")
    return dict(line.split() for line in found.splitlines())


def node(jobs: Jobs, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(jobs.cluster.kubectl("get", "node", name, "-o", "json"))
    return found


@pytest.mark.smoke("cordons the node of a broken GPU")
@pytest.mark.usefixtures("mended")
def test_a_gpu_that_falls_off_the_bus_costs_its_node_and_the_steps_since_the_last_checkpoint(
    jobs: Jobs, gang: dict[str, str]
) -> None:
    broken = gang[f"{NAME}-1-1"]
    jobs.cluster.fault("gpu", broken, gpu=0, xid=79)
    status = jobs.wait_for_checkpoint_of(NAME, 2)
    fault, attempt = status["lastFault"], status["attempts"][-1]
    uuid = f"GPU-{broken}-00000000"
    assert (fault["class"], fault["verdict"], fault["xid"], fault["nodeName"]) == ("GPU", "ReplaceNode", 79, broken)
    assert (fault["gpu"]["uuid"], fault["gpu"]["index"]) == (uuid, 0)
    assert fault["evidence"][1].startswith("xid: 79")
    assert (attempt["reason"], attempt["removedNodeNames"]) == ("GPUFault", [broken])
    assert attempt["resumedFromStep"] > 0
    assert broken not in attempt["nodeNames"]
    assert status["restarts"]["application"] == 0
    assert status["summary"]["lastFault"] == f"{broken} GPU 0 XID 79"
    assert node(jobs, broken)["spec"]["unschedulable"] is True
    mark = json.loads(node(jobs, broken)["metadata"]["annotations"]["oarlock.dev/cordoned"])
    assert uuid in mark["reason"]
    assert [entry["name"] for entry in status["cordonedNodes"]] == [broken]
    for reason in ("GPUFault", "NodeCordoned"):
        assert uuid in jobs.events(NAME, reason)[0]["message"]


@pytest.mark.usefixtures("mended")
def test_a_gpu_that_falls_off_the_bus_costs_its_pod_alone_where_pods_are_made_anew_and_its_node_as_ever(
    jobs: Jobs, in_rounds: dict[str, str]
) -> None:
    broken, other = in_rounds[f"{ALONE}-1-1"], in_rounds[f"{ALONE}-1-0"]
    jobs.cluster.fault("gpu", broken, gpu=0, xid=79)
    status = jobs.wait(
        ALONE, "the round after it", lambda status: status.get("round") == 2 and "stage" not in status["recovery"]
    )
    fault, ended = status["lastFault"], status["rounds"][-1]
    assert (fault["class"], fault["verdict"], fault["xid"], fault["nodeName"]) == ("GPU", "ReplaceNode", 79, broken)
    assert (ended["rung"], ended["reason"], ended["nodeName"]) == ("ReplacePod", "GPUFault", broken)
    assert (status["attempt"], status["restarts"]["application"]) == (1, 0)
    after = nodes_of(jobs, ALONE)
    assert after[f"{ALONE}-1-0"] == other
    assert after[f"{ALONE}-1-1-i2"] not in (broken, other)
    assert node(jobs, broken)["spec"]["unschedulable"] is True
    assert [entry["name"] for entry in status["cordonedNodes"]] == [broken]


@pytest.mark.usefixtures("mended")
def test_a_warning_saves_at_once_and_interrupts_nothing(jobs: Jobs) -> None:
    jobs.apply(NAME, **UNPACED | {"every": UNPACED["steps"]}, nodes=1, gpusPerNode=2)
    try:
        jobs.wait(NAME, "training", lambda status: (status.get("progress") or {}).get("step", 0) > 5)
        pod = f"{NAME}-1-0"
        watched = nodes_of(jobs)[pod]
        jobs.cluster.fault("gpu", watched, gpu=0, remap_pending=True)
        status = jobs.wait(NAME, "a checkpoint", lambda status: "latestCheckpoint" in status)
        health = jobs.agent(pod)["health"]
        assert (health["state"], health["circuit"]["state"]) == ("Hold", "closed")
        assert health["circuit"]["gpu"]["uuid"] == f"GPU-{watched}-00000000"
        assert status["attempt"] == 1
        assert node(jobs, watched)["spec"].get("unschedulable") is None
    finally:
        jobs.delete(NAME)


@pytest.mark.usefixtures("mended")
def test_a_fault_that_spares_the_gpu_is_free_once_and_not_twice(jobs: Jobs, rooted: dict[str, str]) -> None:
    suspect = rooted[f"{SUSPECT}-1-1"]
    jobs.cluster.fault("gpu", suspect, gpu=0, xid=94)
    status = jobs.wait_for_checkpoint_of(SUSPECT, 2)
    assert (status["lastFault"]["verdict"], status["avoidedNodes"]) == ("RestartProcess", [])
    assert [strike["count"] for strike in status["strikes"]] == [1]
    assert node(jobs, suspect)["spec"].get("unschedulable") is None
    assert suspect in nodes_of(jobs, SUSPECT).values()
    jobs.cluster.kubectl("uncordon", jobs.cluster.nodes[0])
    jobs.cluster.fault("gpu", suspect, gpu=0, xid=94)
    status = jobs.wait_for_checkpoint_of(SUSPECT, 3)
    assert (status["lastFault"]["verdict"], status["lastFault"]["xid"]) == ("ReplaceNode", 94)
    assert suspect not in status["attempts"][-1]["nodeNames"]
    assert node(jobs, suspect)["spec"]["unschedulable"] is True
