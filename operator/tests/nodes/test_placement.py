"""Spare nodes: what others wrote on them, whether a pod may run there, and whether there is room. Every doubt is a no."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator
from dataclasses import replace
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from jobs import job, spec

from oarlock_api.history import Attempt, AvoidedNode
from oarlock_api.status import TrainingJobStatus
from oarlock_operator.kube.api_error import ApiError
from oarlock_operator.kube.decoding import Page
from oarlock_operator.manifests.pod import pod as pod_manifest
from oarlock_operator.model.job_memory import JobMemory
from oarlock_operator.model.node_maintenance import maintenance_of
from oarlock_operator.model.observation import Job, Pod
from oarlock_operator.nodes.placement import has_room, may_run_on, requests
from oarlock_operator.nodes.spares import MOST_READ, REREAD_SECONDS, SpareReader

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
    found = maintenance_of(node(**parts))
    assert (found is None) if words is None else (found is not None and found.message.endswith(words))


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
        ([other(cpu="100u")], False),
        ([{**other(), "spec": {"containers": [], "overhead": {"cpu": "57"}}}], False),
    ],
)
def test_there_is_room_beside_what_runs_there(others: list[Json], room: bool) -> None:  # noqa: FBT001
    assert has_room(wanted(), node(), others) == room


def test_a_resource_that_a_node_does_not_name_is_none_that_it_has() -> None:
    bare = node()
    del bare["status"]["allocatable"]["nvidia.com/gpu"]
    assert not has_room(wanted(), bare, [])


def test_host_ports_are_taken_once() -> None:
    def on(port: int, **more: Any) -> Json:
        return {"metadata": {}, "spec": {"containers": [{"ports": [{"containerPort": port}]}], **more}}

    assert not has_room(on(9400, hostNetwork=True), node(), [on(9400, hostNetwork=True)])
    assert has_room(on(9400, hostNetwork=True), node(), [on(9400), on(29500, hostNetwork=True)])


@pytest.mark.parametrize("unknown", [{"resourceClaims": [{"name": "gpu"}]}, {"runtimeClassName": "kata"}])
def test_what_is_not_understood_is_a_no(unknown: Json) -> None:
    pod = wanted()
    assert may_run_on(pod, node())
    assert not may_run_on({**pod, "spec": {**pod["spec"], **unknown}}, node())


def test_a_sidecar_is_added_and_an_init_container_counts_as_the_larger_of_the_two() -> None:
    pod = other(cpu="2")
    pod["spec"]["initContainers"] = [{"resources": {"requests": {"cpu": "3", "memory": "1Gi"}}}]
    assert requests(pod) == {"cpu": Decimal(3), "memory": Decimal(2**30)}
    pod["spec"]["initContainers"][0]["restartPolicy"] = "Always"
    assert requests(pod) == {"cpu": Decimal(5), "memory": Decimal(2**30)}


class Listing:
    """A cluster of nodes, pods on them, and other jobs."""

    def __init__(
        self, nodes: list[Json], pods: dict[str, list[Json]] | None = None, jobs: list[Json] | None = None
    ) -> None:
        self.nodes, self.pods, self.jobs = nodes, pods or {}, jobs or []
        self.asked: dict[str, int] = defaultdict(int)
        self.admitted: dict[str, Json] = {}

    async def list(self, path: str, **query: str) -> list[Json]:
        kind = path.rpartition("/")[2]
        self.asked[kind] += 1
        if kind == "pods":
            return self.pods.get(query["fieldSelector"].partition("=")[2], [])
        return {"nodes": self.nodes, "trainingjobs": self.jobs}[kind]

    async def get(self, path: str) -> Json:
        return self.admitted[path.rpartition("/")[2]]

    async def list_of(self, kind: Any, path: str) -> list[Any]:
        return [msgspec.convert(raw, kind) for raw in await self.list(path)]

    async def pages_of(self, kind: Any, path: str) -> AsyncIterator[Page[Any]]:
        for raw in await self.list(path):
            yield Page(items=(msgspec.convert(raw, kind),))


def living(*nodes: str) -> list[Pod]:
    return [
        Pod(name=f"flux-1-{rank}", uid=f"u{rank}", attempt=1, rank=rank, node=name) for rank, name in enumerate(nodes)
    ]


CORDONED: Json = {"spec": {"unschedulable": True}}


async def enough(cluster: Listing, *, pods: list[Pod] | None = None, leaving: frozenset[str] = frozenset()) -> bool:
    spares = SpareReader(cluster)  # type: ignore[arg-type]
    return await spares.enough(a_job(), pods or living("n1", "n2"), JobMemory(), leaving=leaving)


@pytest.mark.parametrize(
    ("own", "others", "found"),
    [
        ([node("n1", **CORDONED), node("n2")], [node("n3")], True),
        ([node("n1", **CORDONED), node("n2")], [], False),
        ([node("n1", **CORDONED), node("n2", **CORDONED)], [node("n3")], False),
        ([node("n1", **CORDONED), node("n2", **CORDONED)], [node("n3"), node("n4")], True),
        ([node("n1", **CORDONED), node("n2", labels={"pool": "cpu"})], [node("n3")], False),
        ([node("n1", **CORDONED)], [node("n3")], False),
        ([node("n1", **CORDONED), node("n2")], [node("busy")], False),
        ([node("n1", **CORDONED), node("n2")], [node("n3", ready="False")], False),
    ],
    ids=["one", "none", "one for two", "two", "no way back to n2", "n2 is gone", "full", "not ready"],
)
async def test_spares_are_enough_for_all_nodes_that_would_not_take_the_gang_again(
    own: list[Json],
    others: list[Json],
    found: bool,  # noqa: FBT001
) -> None:
    assert await enough(Listing([*own, *others], {"busy": [other(nvidia_gpu="8")]})) == found


async def test_a_node_that_is_to_be_left_is_no_way_back_though_it_would_take_the_gang() -> None:
    cluster, leaving = Listing([node("n1"), node("n2")]), frozenset({"n2"})
    assert not await enough(cluster, leaving=leaving)
    cluster.nodes.append(node("n3"))
    assert await enough(cluster, leaving=leaving)


async def test_a_gang_whose_nodes_would_all_take_it_again_has_nowhere_to_move_to() -> None:
    nodes = [node("n1"), node("n2"), node("n3")]
    assert not await enough(Listing(nodes)), "a mark was taken back before the look"
    assert await enough(Listing([node("n1", **CORDONED), *nodes[1:]]))


@pytest.mark.parametrize(
    ("marked", "spare", "free", "found"),
    [
        ("n1", "", ["n4"], True),
        ("n1", "", [], False),
        ("n1", "n3", [], True),
        ("", "", ["n4"], False),
        ("", "n3", ["n4"], False),
    ],
    ids=["its spare waits", "no room", "the spare's own", "taken back, its spare waits", "taken back"],
)
async def test_a_gang_that_moves_asks_for_no_node_for_its_spare_and_takes_the_spare_s(
    marked: str,
    spare: str,
    free: list[str],
    found: bool,  # noqa: FBT001
) -> None:
    status = TrainingJobStatus(attempt=1, attempts=(Attempt(number=1, node_count=3),), standby=(2,))
    of = job(spec=spec(nodes=2, gpusPerNode=8, spares=1, recovery={"inPlace": "Auto"}), status=status)
    nodes = [node(name, **(CORDONED if name == marked else {})) for name in ("n1", "n2", *free)]
    reader = SpareReader(Listing([*nodes, node("n3")] if spare else nodes))  # type: ignore[arg-type]
    assert await reader.enough(of, living("n1", "n2", spare), JobMemory()) == found


@pytest.mark.parametrize(("free", "found"), [(["n3"], True), (["n1"], False), ([], False)])
async def test_pods_that_have_no_node_yet_need_one_each(free: list[str], found: bool) -> None:  # noqa: FBT001
    cluster = Listing([node(name) for name in {"n1", *free}])
    assert await enough(cluster, pods=living("n1", "")) == found


@pytest.mark.parametrize(
    ("surge", "free", "found"),
    [("n3", [], False), ("n3", ["n4"], True), ("", ["n4"], False), ("", ["n4", "n5"], True)],
    ids=["no node is left", "one is left", "the first one takes it", "one for each"],
)
async def test_a_second_surge_pod_needs_a_node_beside_that_of_the_first(
    surge: str,
    free: list[str],
    found: bool,  # noqa: FBT001
) -> None:
    first = replace(living("", surge)[1], name="flux-1-1-i2", uid="u1-2", incarnation=2)
    cluster = Listing([node(name) for name in ("n1", "n2", *filter(None, [surge]), *free)])
    assert await enough(cluster, pods=[*living("n1", "n2"), first], leaving=frozenset({"n1"})) == found


@pytest.mark.parametrize(
    ("admitted", "found"),
    [
        ({}, True),
        ({"nodeSelector": {"runtime": "nvidia"}}, False),
        ({"overhead": {"cpu": "60"}}, False),
    ],
    ids=["nothing more", "on some nodes only", "an overhead"],
)
async def test_what_a_runtime_class_asks_for_is_read_from_a_pod_of_the_gang(admitted: Json, found: bool) -> None:  # noqa: FBT001
    """Every job of the GPU operator may have one: a no for all of them would leave gangs beside free nodes."""
    the_spec = spec(gpusPerNode=8, pod={"runtimeClassName": "nvidia", "resources": {"requests": {"cpu": "8"}}})
    avoided = (AvoidedNode(name="n3"),)
    of = job(spec=the_spec, status=TrainingJobStatus(attempt=1, avoided_nodes=avoided))
    cluster = Listing([node("n1"), node("n2"), node("n3")])
    made = pod_manifest(of, the_spec, attempt=1, rank=0, image="i", avoided=())
    cluster.admitted = {"flux-1-0": {**made, "spec": {**made["spec"], **admitted}}}
    spares = SpareReader(cluster)  # type: ignore[arg-type]
    assert await spares.enough(of, living("n1", ""), JobMemory()) == found
    assert not await spares.enough(of, living("n1", ""), JobMemory(), leaving=frozenset({"n2"})), "n3 is avoided"


async def test_a_node_that_the_gang_left_long_ago_is_as_spare_as_any() -> None:
    cluster = Listing([node("n1", **CORDONED), node("n2"), node("n3")])
    old = [replace(pod, gone=True) for pod in living("n3")]
    assert await enough(cluster, pods=[*living("n1", "n2"), *old])


async def test_a_free_node_is_found_among_any_number_of_busy_ones() -> None:
    busy = {f"busy-{i}": [other(nvidia_gpu="8")] for i in range(100)}
    cluster = Listing([node("n1", **CORDONED), node("n2"), *(node(name) for name in busy), node("n3")], busy)
    assert any([await enough(cluster) for _ in range(40)])
    assert cluster.asked["pods"] <= 40 * MOST_READ


def at(stage: str | None, reason: str) -> Json:
    return {"status": {"attempt": 1, "reason": reason, "recovery": {"stage": stage} if stage else {}}}


@pytest.mark.parametrize(
    ("another", "found"),
    [
        (at("Drain", "NodeLost"), False),
        (at("Schedule", "NodeMarked"), False),
        (at("Schedule", "Unschedulable"), True),
        (at("Schedule", "NotEnoughHealthyNodes"), True),
        (at("Start", "NodeMarked"), True),
        (at(None, "Training"), True),
        (at("Suspended", "Suspended"), False),
        ({**at("Suspended", "Suspended"), "spec": {"suspend": True}}, True),
        (at("Suspended", "GangUnavailable"), True),
        ({"status": {"attempt": 1, "recovery": {"surging": [{"rank": 1, "incarnation": 2}]}}}, False),
        ({"status": {"reason": "WaitingForPredecessor"}}, True),
        (at("Queue", "Queued"), True),
        ({}, False),
        ({"spec": {"suspend": True}}, True),
        ({"spec": {"managedBy": "example.com/other"}}, True),
        ({"metadata": {"uid": "uid-2", "deletionTimestamp": "2026-01-01T12:00:00Z"}}, True),
        ({"status": {"reason": "InvalidSpec", "completionTime": "2026-01-01T12:00:00Z"}}, True),
    ],
    ids=[
        "drains", "is to be placed", "found no place", "keeps off the broken", "starts", "trains",
        "is resumed", "is suspended", "has no gang system", "has a surge pod", "waits for its predecessor", "queues",
        "is new", "is new and suspended", "is somebody else's", "goes", "has failed",
    ],
)  # fmt: skip
async def test_while_another_job_may_take_them_no_nodes_are_spare(another: Json, found: bool) -> None:  # noqa: FBT001
    jobs = [{"metadata": {"uid": "uid-2"}, **another}]
    assert await enough(Listing([node("n1", **CORDONED), node("n2"), node("n3")], jobs=jobs)) == found


async def test_a_no_holds_for_a_while_and_a_yes_is_asked_for_anew() -> None:
    now = 1000.0
    cluster, memory = Listing([node("n1", **CORDONED), node("n2")]), JobMemory()
    spares = SpareReader(cluster, clock=lambda: now)  # type: ignore[arg-type]
    for _ in range(2):
        assert not await spares.enough(a_job(), living("n1", "n2"), memory)
    assert cluster.asked["nodes"] == 1
    cluster.nodes.append(node("n3"))
    now += REREAD_SECONDS
    for _ in range(2):
        assert await spares.enough(a_job(), living("n1", "n2"), memory)
    assert cluster.asked["nodes"] == 3


async def test_a_look_that_fails_is_a_no() -> None:
    class Failing(Listing):
        async def list(self, path: str, **query: str) -> list[Json]:
            raise ApiError(0, "TimeoutError", f"{path}{query}")

    assert not await enough(Failing([]))
