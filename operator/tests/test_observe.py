"""Observing: what the API says of a job and its pods, reduced to facts, however odd it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from memory_api import Json, MemoryApi
from worlds import START, spec

from oarlock_api.contract.report import Report
from oarlock_operator.nodes import NodeSightings, read_node
from oarlock_operator.observation import Defaults, Ending, Observation, Pod
from oarlock_operator.observe import observe
from oarlock_operator.pod_facts import RawPod
from oarlock_operator.pod_facts import read_pod as read_raw_pod
from oarlock_operator.sightings import Sightings

REPORT = Report(2, 1, "pod-uid", "GPU", 80, "2026-01-01T12:00:00+00:00", "XID 79")


def pod(status: Json | None = None, **metadata: Any) -> Json:
    labels = {
        "oarlock.dev/job": "flux",
        "oarlock.dev/job-uid": "uid-1",
        "oarlock.dev/attempt": "2",
        "oarlock.dev/rank": "1",
    }
    owner = {"uid": "uid-1", "kind": "TrainingJob"}
    known = {"name": "flux-2-1", "uid": "pod-uid", "labels": labels, "ownerReferences": [owner], **metadata}
    return {"metadata": known, "spec": {"nodeName": "node-b"}, **({"status": status} if status is not None else {})}


def read_pod(raw: Json, *, gone: bool = False) -> Pod:
    return read_raw_pod(msgspec.convert(raw, RawPod), gone=gone)


def as_raw(*arguments: Any, **more: Any) -> RawPod:
    return msgspec.convert(pod(*arguments, **more), RawPod)


def container(**state: Any) -> list[Json]:
    other = {"name": "sidecar", "state": {"terminated": {"exitCode": 9}}}
    return [other, {"name": "trainer", "state": state}]


def condition(kind: str, status: str, **more: str) -> Json:
    return {"type": kind, "status": status, **more}


def test_a_pod_that_was_just_created_is_nothing_but_its_name() -> None:
    raw = pod()
    del raw["spec"]
    assert read_pod(raw) == Pod(name="flux-2-1", uid="pod-uid", attempt=2, rank=1)


def test_a_running_pod_tells_where_it_is_and_that_it_is_ready() -> None:
    conditions = [condition("PodScheduled", "True"), condition("Ready", "True")]
    seen = read_pod(
        pod(
            {
                "phase": "Running",
                "podIP": "10.0.0.7",
                "conditions": conditions,
                "containerStatuses": container(running={}),
            }
        )
    )
    assert (seen.node, seen.address, seen.scheduled, seen.started, seen.ready) == (
        "node-b",
        "10.0.0.7",
        True,
        True,
        True,
    )
    assert not seen.stopped
    assert seen.obstacle == ""


@pytest.mark.parametrize(
    ("status", "ending"),
    [
        pytest.param(
            {"phase": "Running", "containerStatuses": container(terminated={"exitCode": 1, "reason": "Error"})},
            Ending(1, "Error"),
            id="the container ended, the phase does not know yet",
        ),
        pytest.param(
            {"phase": "Running", "containerStatuses": container(terminated={"exitCode": 0, "reason": "Completed"})},
            Ending(0, "Completed"),
            id="done, the phase does not know yet",
        ),
        pytest.param({"phase": "Succeeded"}, Ending(0), id="succeeded without container status"),
        pytest.param(
            {"phase": "Failed", "reason": "Evicted", "message": "The node was low on memory"},
            Ending(None, "Evicted", "The node was low on memory"),
            id="evicted before a container ran",
        ),
        pytest.param(
            {"phase": "Failed", "reason": "UnexpectedAdmissionError", "containerStatuses": container(waiting={})},
            Ending(None, "UnexpectedAdmissionError"),
            id="refused by the kubelet",
        ),
        pytest.param(
            {"phase": "Failed", "containerStatuses": container(terminated={"exitCode": 137, "reason": "OOMKilled"})},
            Ending(137, "OOMKilled"),
            id="out of memory",
        ),
        pytest.param(
            {"containerStatuses": container(terminated={"reason": "ContainerStatusUnknown"})},
            Ending(1, "ContainerStatusUnknown"),
            id="no exit code",
        ),
        pytest.param({"phase": "Running", "containerStatuses": container(running={})}, None, id="running"),
        pytest.param({"phase": "Pending"}, None, id="pending"),
        pytest.param({"phase": "Unknown"}, None, id="node lost"),
        pytest.param({"containerStatuses": container()}, None, id="a sidecar's end is not the trainer's"),
    ],
)
def test_an_ending_is_read_from_the_container_before_the_phase(status: Json, ending: Ending | None) -> None:
    seen = read_pod(pod(status))
    assert seen.ending == ending
    assert seen.stopped == (ending is not None)


def test_a_log_s_end_is_kept_where_the_error_stands() -> None:
    message = "x" * 5000 + "\nValueError: the end\n"
    seen = read_pod(pod({"containerStatuses": container(terminated={"exitCode": 1, "message": message[-4096:]})}))
    assert seen.ending is not None
    assert seen.ending.message.endswith("ValueError: the end")
    assert len(seen.ending.message) <= 600
    assert seen.ending.report is None


@pytest.mark.parametrize(
    ("changes", "believed"),
    [
        ({}, True),
        ({"pod_uid": ""}, True),
        ({"pod_uid": "uid-of-another-pod"}, False),
        ({"attempt": 1}, False),
        ({"rank": 0}, False),
    ],
    ids=["its own", "from before it knew its uid", "another pod's", "another attempt's", "another rank's"],
)
def test_a_report_is_believed_only_about_its_own_pod_and_attempt(changes: dict[str, Any], believed: bool) -> None:  # noqa: FBT001
    fields = {name: getattr(REPORT, name) for name in REPORT.__dataclass_fields__}
    said = Report(**{**fields, **changes}).to_json()
    seen = read_pod(pod({"containerStatuses": container(terminated={"exitCode": 80, "message": said})}))
    assert seen.ending is not None
    assert (seen.ending.report is not None) == believed
    assert seen.ending.code == 80
    assert (seen.ending.rejected == "") == believed
    assert seen.ending.message == "", "what is not believed is shown to nobody"


@pytest.mark.parametrize(
    ("message", "rejected"),
    [
        pytest.param('{"version": 1, "podUid": "x", "attempt": 2', "it is broken: not JSON", id="cut off"),
        pytest.param('{"podUid": "pod-uid", "rank": 1, "code": 80}', "attempt, rank or code is missing", id="lacking"),
        pytest.param("Traceback: podUid", "", id="a log"),
        pytest.param('{"event": "the end of a log"}', "", id="a structured log"),
    ],
)
def test_a_broken_report_is_told_from_the_end_of_a_log(message: str, rejected: str) -> None:
    seen = read_pod(pod({"containerStatuses": container(terminated={"exitCode": 80, "message": message})}))
    assert seen.ending is not None
    assert rejected in seen.ending.rejected
    assert bool(seen.ending.rejected) == bool(rejected)
    assert seen.ending.report is None


@pytest.mark.parametrize(
    ("status", "obstacle"),
    [
        (
            {"conditions": [condition("PodScheduled", "False", message="0/3 nodes are available")]},
            "0/3 nodes are available",
        ),
        (
            {"containerStatuses": container(waiting={"reason": "ImagePullBackOff", "message": "no such image"})},
            "ImagePullBackOff: no such image",
        ),
        ({"containerStatuses": container(waiting={"reason": "ContainerCreating"})}, ""),
        ({"containerStatuses": container(waiting={"reason": "PodInitializing", "message": "x"})}, ""),
        ({"containerStatuses": container(waiting={})}, ""),
        ({"containerStatuses": container(running={})}, ""),
        ({}, ""),
    ],
)
def test_what_keeps_a_pod_from_starting_is_told_in_the_cluster_s_own_words(status: Json, obstacle: str) -> None:
    raw = pod(status)
    del raw["spec"]
    assert read_pod(raw).obstacle == obstacle


@pytest.mark.parametrize(
    ("status", "disrupted"),
    [
        (
            {"conditions": [condition("DisruptionTarget", "True", reason="EvictionByEvictionAPI")]},
            "EvictionByEvictionAPI",
        ),
        (
            {"conditions": [condition("DisruptionTarget", "True", reason="PreemptionByScheduler")]},
            "PreemptionByScheduler",
        ),
        (
            {"conditions": [condition("DisruptionTarget", "True", reason="TerminationByKubelet")]},
            "TerminationByKubelet",
        ),
        ({"conditions": [condition("DisruptionTarget", "True", reason="DeletionByTaintManager")]}, ""),
        ({"conditions": [condition("DisruptionTarget", "True", reason="DeletionByPodGC")]}, ""),
        ({"conditions": [condition("DisruptionTarget", "False", reason="EvictionByEvictionAPI")]}, ""),
        ({"phase": "Failed", "reason": "Evicted"}, "Evicted"),
        ({"phase": "Failed", "reason": "NodeLost"}, ""),
    ],
)
def test_an_eviction_or_preemption_is_told_from_a_lost_node(status: Json, disrupted: str) -> None:
    assert read_pod(pod(status)).disrupted == disrupted


def test_a_pod_that_is_being_deleted_or_gone_says_so() -> None:
    seen = read_pod(pod(deletionTimestamp="2026-01-01T00:00:00Z"))
    assert (seen.deleting, seen.stopped) == (True, False)
    gone = read_pod(pod(), gone=True)
    assert (gone.gone, gone.stopped) == (True, True)


@pytest.mark.parametrize("labels", [None, {}, {"oarlock.dev/attempt": "two"}])
def test_a_pod_without_readable_labels_belongs_to_no_attempt(labels: object) -> None:
    seen = read_pod(pod(labels=labels))
    assert (seen.attempt, seen.rank) == (0, 0)


def job(**parts: Any) -> Json:
    return {"metadata": {"namespace": "default", "name": "flux", "uid": "uid-1"}, "spec": spec().to_manifest(), **parts}


class Listing(MemoryApi):
    """With lists by one label."""

    async def list(self, path: str, *, labelSelector: str = "") -> list[Json]:  # noqa: N803 - the API's own spelling
        found = [body for name, body in self.objects.items() if name.startswith(path + "/")]
        if "," in labelSelector:
            return []
        label, _, value = labelSelector.partition("=")
        return [body for body in found if not label or body["metadata"].get("labels", {}).get(label) == value]

    async def list_of(self, kind: type[RawPod], path: str, **query: str) -> list[RawPod]:
        return [msgspec.convert(raw, kind) for raw in await self.list(path, **query)]


class Silent:
    """A progress reader without news; `answers` are the uids of agents that live."""

    def __init__(self, *answers: str) -> None:
        self.answers = answers

    async def read(self, _job: object, _pods: object) -> tuple[None, dict[str, float]]:
        return None, {}

    def warnings(self, _job: object) -> dict[str, str]:
        return {}

    async def answering(self, _job: object, pods: Sequence[Pod]) -> frozenset[str]:
        return frozenset(pod.uid for pod in pods if pod.uid in self.answers)


async def look(
    api: MemoryApi,
    sightings: Sightings | None = None,
    *,
    nodes: NodeSightings | None = None,
    answers: tuple[str, ...] = (),
) -> Observation | None:
    seen = await observe(
        api,  # type: ignore[arg-type]
        ("default", "flux"),
        sightings=sightings or Sightings(),
        node_sightings=nodes or NodeSightings(),
        progress=Silent(*answers),  # type: ignore[arg-type]
        defaults=Defaults(trainer_image="i"),
        now=START,
        waited=0.0,
    )
    return seen[0] if seen else None


def cluster_with(*pods: Json) -> MemoryApi:
    api = Listing()
    api.objects["/apis/oarlock.dev/v1alpha1/namespaces/default/trainingjobs/flux"] = job()
    for raw in pods:
        api.objects[f"/api/v1/namespaces/default/pods/{raw['metadata']['uid']}"] = raw
    return api


async def test_a_job_that_is_gone_is_nothing_to_look_at() -> None:
    assert await look(Listing()) is None


async def test_only_pods_that_the_job_owns_count_whatever_their_labels_say() -> None:
    copied = pod(name="debug-copy", uid="copied", ownerReferences=[{"uid": "somebody-else"}])
    stray = pod(name="stray", uid="stray", ownerReferences=None)
    sightings = Sightings()
    sightings.note(as_raw(name="stray", uid="seen", ownerReferences=[]), deleted=True)
    o = await look(cluster_with(pod(), copied, stray), sightings)
    assert o is not None
    assert [seen.name for seen in o.pods] == ["flux-2-1"]


async def test_what_the_watch_saw_of_a_pod_that_is_gone_is_added_and_a_living_pod_is_read_live() -> None:
    sightings = Sightings()
    ended = {"containerStatuses": container(terminated={"exitCode": 80, "message": REPORT.to_json()})}
    sightings.note(as_raw(ended), deleted=True)
    sightings.note(as_raw(ended, uid="alive"), deleted=False)
    o = await look(cluster_with(pod(uid="alive")), sightings)
    assert o is not None
    assert {seen.uid: (seen.gone, seen.stopped) for seen in o.pods} == {
        "alive": (False, False),
        "pod-uid": (True, True),
    }
    assert next(seen for seen in o.pods if seen.gone).ending.report == REPORT  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("owners", "selector", "seen"),
    [
        ([{"uid": "uid-1"}], {"oarlock.dev/attempt": "2"}, (True, 2, False)),
        ([{"uid": "another"}], {"app": "web"}, (False, 0, False)),
        ([{"uid": "gone", "kind": "TrainingJob", "name": "flux"}], None, (False, 0, True)),
        (None, None, (False, 0, False)),
    ],
)
async def test_a_service_of_the_job_s_name_is_told_with_its_owner_and_attempt(
    owners: object, selector: object, seen: tuple[bool, int, bool]
) -> None:
    api = cluster_with()
    api.objects["/api/v1/namespaces/default/services/flux"] = {
        "metadata": {"uid": "s", "ownerReferences": owners},
        "spec": {"selector": selector},
    }
    o = await look(api)
    assert o is not None
    assert o.service is not None
    assert (o.service.ours, o.service.attempt, o.service.leaving) == seen


def node(name: str = "n1", *, ready: str = "True", tainted: bool = False) -> Json:
    taints = [{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}] if tainted else []
    return {
        "metadata": {"name": name},
        "spec": {"taints": taints},
        "status": {"conditions": [{"type": "Ready", "status": ready}], "nodeInfo": {"bootID": "boot-1"}},
    }


@pytest.mark.parametrize(
    ("raw", "ready", "unreachable"),
    [
        (node(), True, False),
        (node(ready="False"), False, False),
        (node(ready="Unknown"), False, True),
        (node(tainted=True), False, True),
        ({"metadata": {"name": "n1"}}, False, False),
    ],
    ids=["ready", "not-ready", "unknown", "tainted-only", "says-nothing-yet"],
)
def test_a_node_is_ready_not_ready_or_unreachable(raw: Json, ready: bool, unreachable: bool) -> None:  # noqa: FBT001
    seen = read_node(raw)
    assert (seen.ready, seen.unreachable) == (ready, unreachable)


def test_every_change_of_trouble_is_news_and_a_heartbeat_is_none() -> None:
    nodes = NodeSightings()
    assert not nodes.note(node(), deleted=False)
    cordoned = node()
    cordoned["spec"]["unschedulable"] = True
    for change in (cordoned, node(ready="False"), node(ready="Unknown")):
        assert nodes.note(change, deleted=False)
        assert not nodes.note(change, deleted=False)
    assert nodes.troubled(["n1", "n2"]) == {"n1"}
    assert nodes.note(node(), deleted=False)
    assert nodes.troubled(["n1"]) == set()
    assert nodes.note(node(), deleted=True)


async def test_a_node_in_trouble_is_read_live_and_its_pods_are_asked() -> None:
    api = cluster_with(placed("n1", uid="one"), placed("n2", uid="two"))
    api.objects["/api/v1/nodes/n1"] = node(ready="Unknown")
    sightings = NodeSightings()
    for name in ("n1", "n2"):
        sightings.note(node(name), deleted=True)
    o = await look(api, nodes=sightings, answers=("one",))
    assert o is not None
    assert {name: (seen.exists, seen.unreachable) for name, seen in o.nodes.items()} == {
        "n1": (True, True),
        "n2": (False, False),
    }
    assert o.answering == {"one"}
    by_uid = {seen.uid: seen for seen in o.pods}
    assert (o.on_lost_node(by_uid["one"]), o.on_lost_node(by_uid["two"])) == (False, True)


def placed(on: str, *, uid: str) -> Json:
    raw = pod({"podIP": "10.0.0.1", "containerStatuses": container(running={})}, uid=uid)
    raw["spec"] = {**(raw.get("spec") or {}), "nodeName": on}
    return raw


async def test_a_pod_of_an_earlier_job_of_the_same_name_lingers_and_one_copied_by_hand_does_not() -> None:
    earlier = {"uid": "uid-0", "kind": "TrainingJob", "name": "flux"}
    old = pod(name="flux-1-0", uid="old", ownerReferences=[earlier])
    copied = pod(name="debug-copy", uid="copied", ownerReferences=None)
    o = await look(cluster_with(old, copied))
    assert o is not None
    assert o.lingering == ("flux-1-0",)


async def test_healthy_nodes_are_not_read() -> None:
    o = await look(cluster_with(placed("n1", uid="one")))
    assert o is not None
    assert o.nodes == {}


@pytest.mark.parametrize(("reason", "lost"), [("DeletionByTaintManager", True), ("PreemptionByScheduler", False)])
def test_without_rights_on_nodes_a_pod_tells_itself_that_its_node_is_lost(reason: str, lost: bool) -> None:  # noqa: FBT001
    target = {"type": "DisruptionTarget", "status": "True", "reason": reason}
    assert read_pod(pod({"conditions": [target]})).node_lost is lost


def test_a_pod_with_a_node_is_placed_whatever_a_scheduler_that_came_late_says() -> None:
    late = condition("PodScheduled", "False", reason="Unschedulable", message="no nodes")
    seen = read_pod(pod({"conditions": [late]}))
    assert (seen.scheduled, seen.obstacle) == (True, "")


def test_a_pod_that_a_queue_holds_back_is_gated() -> None:
    gate = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
    assert read_pod(pod({"conditions": [gate]})).gated


def test_of_our_own_structured_log_only_what_it_says_is_shown() -> None:
    log = 'Traceback\n{"time": "12:00", "event": "rank 1 ended by signal 9"}\n{broken'
    ended = read_pod(pod({"containerStatuses": container(terminated={"exitCode": 137, "message": log})})).ending
    assert ended is not None
    assert ended.message == "Traceback\nrank 1 ended by signal 9\n{broken"


def test_an_init_container_that_cannot_start_is_what_the_pod_waits_for() -> None:
    waiting = {"reason": "ImagePullBackOff", "message": "no such image"}
    seen = read_pod(
        pod(
            {
                "phase": "Pending",
                "conditions": [condition("PodScheduled", "True")],
                "containerStatuses": container(waiting={"reason": "PodInitializing"}),
                "initContainerStatuses": [{"name": "oarlock-agent", "state": {"waiting": waiting}}],
            }
        )
    )
    assert seen.obstacle == "ImagePullBackOff: no such image"


def test_an_init_container_that_fails_says_why_its_pod_did() -> None:
    ended = {"exitCode": 1, "message": "no space left on device"}
    seen = read_pod(
        pod(
            {
                "phase": "Failed",
                "containerStatuses": container(waiting={"reason": "PodInitializing"}),
                "initContainerStatuses": [{"name": "oarlock-agent", "state": {"terminated": ended}}],
            }
        )
    )
    assert seen.ending is not None
    assert seen.ending.message == "an init container ended with 1: no space left on device"
