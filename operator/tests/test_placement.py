"""Spare nodes: what others wrote on them, whether a pod may run there, and whether there is room. Every doubt is a no."""

from __future__ import annotations

from collections import defaultdict
from decimal import Decimal
from typing import Any

import pytest
from worlds import job, spec

from oarlock_api.history import AvoidedNode
from oarlock_api.status import TrainingJobStatus
from oarlock_operator.manifests.pod import pod as pod_manifest
from oarlock_operator.marks import mark_of
from oarlock_operator.observation import Job, Pod
from oarlock_operator.placement import has_room, may_run_on, requests
from oarlock_operator.spares import SpareReader

Json = dict[str, Any]
SCHEDULING = {"nodeSelector": {"pool": "gpu"}}


def node(name: str = "n1", *, taints: list[Json] | None = None, ready: str = "True", **parts: Any) -> Json:
    return {
        "metadata": {"name": name, "labels": {"pool": "gpu", **parts.pop("labels", {})}},
        "spec": {"taints": taints or [], **parts.pop("spec", {})},
        "status": {
            "conditions": [{"type": "Ready", "status": ready}, *parts.pop("conditions", [])],
            "allocatable": {"nvidia.com/gpu": "8", "cpu": "64", "memory": "512Gi", "pods": "110", **parts},
        },
    }


def wanted(job: Job | None = None, **scheduling: Any) -> Json:
    of = job or a_job(**scheduling)
    assert of.spec is not None
    return pod_manifest(of, of.spec, attempt=1, rank=0, image="i", avoided=of.status.avoided_nodes)


def a_job(*, avoided: tuple[AvoidedNode, ...] = (), **scheduling: Any) -> Job:
    the_spec = spec(
        gpusPerNode=8, scheduling={**SCHEDULING, **scheduling}, pod={"resources": {"requests": {"cpu": "8"}}}
    )
    return job(spec=the_spec, status=TrainingJobStatus(attempt=1, avoided_nodes=avoided))


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({}, None),
        ({"spec": {"unschedulable": True}}, "cordoned"),
        ({"taints": [{"key": "gpu.nvidia.com/xid", "effect": "NoSchedule"}]}, "taint gpu.nvidia.com/xid"),
        ({"taints": [{"key": "gpu.nvidia.com/unmonitored", "effect": "None"}]}, None),
        ({"taints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]}, None),
        ({"labels": {"dgxc.nvidia.com/nvsentinel-state": "quarantined"}}, "nvsentinel-state=quarantined"),
        ({"labels": {"dgxc.nvidia.com/nvsentinel-state": "remediation-succeeded"}}, None),
        ({"labels": {"autopilot.ibm.com/gpuhealth": "EVICT"}}, "gpuhealth=EVICT"),
        ({"labels": {"autopilot.ibm.com/gpuhealth": "WARN"}}, None),
        ({"conditions": [{"type": "AcceleratedHardwareReady", "status": "False"}]}, "AcceleratedHardwareReady=False"),
        ({"conditions": [{"type": "AcceleratedHardwareReady", "status": "True"}]}, None),
        ({"conditions": [{"type": "XIDErrors", "status": "True"}]}, "XIDErrors=True"),
    ],
)
def test_the_marks_of_others(parts: Json, words: str | None) -> None:
    mark = mark_of(node(**parts))
    assert (mark is None) if words is None else (mark is not None and mark.words.endswith(words))


@pytest.mark.parametrize(
    ("scheduling", "parts", "may"),
    [
        ({}, {}, True),
        ({}, {"labels": {"pool": "cpu"}}, False),
        ({}, {"ready": "Unknown"}, False),
        ({}, {"spec": {"unschedulable": True}}, False),
        ({}, {"taints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]}, False),
        ({}, {"taints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "PreferNoSchedule"}]}, True),
        (
            {"tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}]},
            {"taints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]},
            True,
        ),
        (
            {"tolerations": [{"key": "team", "value": "a", "effect": "NoSchedule"}]},
            {"taints": [{"key": "team", "value": "b", "effect": "NoSchedule"}]},
            False,
        ),
        ({"avoided": (AvoidedNode(name="n1", reason="x", strict=True),)}, {}, False),
        ({"avoided": (AvoidedNode(name="n1", reason="x", strict=False),)}, {}, True),
    ],
)
def test_a_pod_may_run_where_nothing_but_room_keeps_it_off(scheduling: Json, parts: Json, may: bool) -> None:  # noqa: FBT001
    assert may_run_on(wanted(**scheduling), node(**parts)) == may


def rule(operator: str, *values: str, key: str = "gpu.product") -> Json:
    term = {"matchExpressions": [{"key": key, "operator": operator, **({"values": list(values)} if values else {})}]}
    required = {"nodeSelectorTerms": [term]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


@pytest.mark.parametrize(
    ("scheduling", "may"),
    [
        (rule("In", "H100"), True),
        (rule("In", "A100"), False),
        (rule("NotIn", "H100"), False),
        (rule("Exists"), True),
        (rule("DoesNotExist"), False),
        (rule("Gt", "1"), False),
        (
            {
                "affinity": {
                    "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}
                }
            },
            False,
        ),
    ],
)
def test_the_jobs_own_affinity_holds_or_is_a_doubt(scheduling: Json, may: bool) -> None:  # noqa: FBT001
    assert may_run_on(wanted(**scheduling), node(labels={"gpu.product": "H100"})) == may


def other(*, phase: str = "Running", **resources: str) -> Json:
    container = {"name": "x", "resources": {"limits": {key.replace("_", ".com/"): v for key, v in resources.items()}}}
    return {"metadata": {"name": "other"}, "spec": {"containers": [container]}, "status": {"phase": phase}}


@pytest.mark.parametrize(
    ("others", "room"),
    [
        ([], True),
        ([other(nvidia_gpu="1")], False),
        ([other(nvidia_gpu="8", phase="Succeeded")], True),
        ([other(cpu="55500m")], True),
        ([other(cpu="56"), other(cpu="500m")], False),
        ([other(memory="511Gi")], True),
    ],
)
def test_there_is_room_beside_what_runs_there(others: list[Json], room: bool) -> None:  # noqa: FBT001
    assert has_room(wanted(), node(), others) == room


def test_a_resource_that_a_node_does_not_name_is_none_that_it_has() -> None:
    bare = node()
    del bare["status"]["allocatable"]["nvidia.com/gpu"]
    assert not has_room(wanted(), bare, [])


def test_an_init_container_counts_as_the_larger_of_the_two() -> None:
    pod = other(cpu="2")
    pod["spec"]["initContainers"] = [{"resources": {"requests": {"cpu": "3", "memory": "1Gi"}}}]
    assert requests(pod) == {"cpu": Decimal(3), "memory": Decimal(2**30)}


class Listing:
    """A cluster of nodes, pods on them, and other jobs."""

    def __init__(
        self, nodes: list[Json], pods: dict[str, list[Json]] | None = None, jobs: list[Json] | None = None
    ) -> None:
        self.nodes, self.pods, self.jobs = nodes, pods or {}, jobs or []
        self.asked: dict[str, int] = defaultdict(int)

    async def list(self, path: str, **query: str) -> list[Json]:
        kind = path.rpartition("/")[2]
        self.asked[kind] += 1
        if kind == "pods":
            return self.pods.get(query["fieldSelector"].partition("=")[2], [])
        return {"nodes": self.nodes, "trainingjobs": self.jobs}[kind]


def reader(cluster: Listing) -> SpareReader:
    return SpareReader(cluster, clock=lambda: 100.0)  # type: ignore[arg-type]


OWN = (Pod(name="flux-1-0", uid="u", attempt=1, rank=0, node="n1"),)


async def test_spares_are_free_nodes_besides_the_gangs_own() -> None:
    nodes = [node("n1"), node("n2"), node("n3"), node("n4", spec={"unschedulable": True})]
    cluster = Listing(nodes, {"n3": [other(nvidia_gpu="8")]})
    assert await reader(cluster).read(a_job(), OWN, wanted=2) == 1


async def test_a_look_is_not_repeated_at_once_and_reads_no_further_than_it_must() -> None:
    cluster = Listing([node(f"n{i}") for i in range(2, 9)])
    spares = reader(cluster)
    assert await spares.read(a_job(), OWN, wanted=1) == await spares.read(a_job(), OWN, wanted=1) == 1
    assert cluster.asked == {"trainingjobs": 1, "nodes": 1, "pods": 1}


async def test_while_another_job_moves_no_node_is_spare() -> None:
    moving = {"metadata": {"uid": "uid-2"}, "status": {"reason": "NodeMarked", "recovery": {"stage": "Drain"}}}
    assert await reader(Listing([node("n2")], jobs=[moving])).read(a_job(), OWN, wanted=1) == 0
    moving["status"]["recovery"] = {"stage": "Start"}
    assert await reader(Listing([node("n2")], jobs=[moving])).read(a_job(), OWN, wanted=1) == 1
