"""A pod reduced to facts: where it is, how it ended, what keeps it, however odd the API's words are."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from memory_api import Json
from raw_pods import REPORT, condition, container, pod

from oarlock_api.contract.report import Report
from oarlock_operator.model.observation import Ending, Pod
from oarlock_operator.pods.pod_facts import RawPod
from oarlock_operator.pods.pod_facts import read_pod as read_raw_pod


def read_pod(raw: Json, *, gone: bool = False) -> Pod:
    return read_raw_pod(msgspec.convert(raw, RawPod), gone=gone)


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
        (
            {"conditions": [condition("DisruptionTarget", "True", reason="DeletionByTaintManager")]},
            "DeletionByTaintManager",
        ),
        ({"conditions": [condition("DisruptionTarget", "True", reason="DeletionByPodGC")]}, ""),
        ({"conditions": [condition("DisruptionTarget", "False", reason="EvictionByEvictionAPI")]}, ""),
        ({"conditions": [condition("TerminationTarget", "True", reason="StoppedByKueue")]}, "StoppedByKueue"),
        ({"conditions": [condition("TerminationTarget", "False", reason="StoppedByKueue")]}, ""),
        ({"conditions": [condition("Ready", "False", reason="Evict")]}, "Evicted"),
        ({"conditions": [condition("Ready", "False", reason="ContainersNotReady")]}, ""),
        ({"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory. "}, "Evicted"),
        ({"phase": "Failed", "reason": "Evicted", "message": "The node had condition: [DiskPressure]. "}, "Evicted"),
        ({"phase": "Failed", "reason": "NodeLost"}, ""),
    ],
)
def test_an_eviction_or_preemption_is_told_from_a_lost_node(status: Json, disrupted: str) -> None:
    assert read_pod(pod(status)).disrupted == disrupted


def test_a_pod_that_is_being_deleted_or_gone_says_so() -> None:
    seen = read_pod(pod(deletionTimestamp="2026-01-01T00:00:00Z", deletionGracePeriodSeconds=5))
    assert (seen.deleting, seen.grace_seconds, seen.stopped) == (True, 5, False)
    gone = read_pod(pod(), gone=True)
    assert (gone.gone, gone.stopped) == (True, True)


@pytest.mark.parametrize(
    ("scheduled", "at"),
    [
        ({"status": "True", "lastTransitionTime": "2026-01-01T12:30:00Z"}, datetime(2026, 1, 1, 12, 30, tzinfo=UTC)),
        ({"status": "True", "lastTransitionTime": None}, None),
        ({"status": "False", "lastTransitionTime": "2026-01-01T12:30:00Z"}, None),
    ],
)
def test_a_pod_tells_when_it_was_given_its_node(scheduled: Json, at: datetime | None) -> None:
    assert read_pod(pod({"conditions": [{"type": "PodScheduled", **scheduled}]})).placed_at == at


@pytest.mark.parametrize("labels", [None, {}, {"oarlock.dev/attempt": "two"}])
def test_a_pod_without_readable_labels_belongs_to_no_attempt(labels: object) -> None:
    seen = read_pod(pod(labels=labels))
    assert (seen.attempt, seen.rank) == (0, 0)


@pytest.mark.parametrize(
    "said",
    [
        "Pod ephemeral local storage usage exceeds the total limit of containers 8Gi. ",
        'Usage of EmptyDir volume "scratch" exceeds the limit "32Mi". ',
        'Container trainer exceeded its local ephemeral storage limit "8Gi". ',
        "",
    ],
)
@pytest.mark.parametrize("conditions", [[], [condition("DisruptionTarget", "True", reason="TerminationByKubelet")]])
def test_an_eviction_for_a_limit_of_the_pod_s_own_is_no_disruption(said: str, conditions: list[Json]) -> None:
    seen = read_pod(pod({"phase": "Failed", "reason": "Evicted", "message": said, "conditions": conditions}))
    ours = bool(said) or not conditions
    assert bool(seen.own_limit) is ours
    assert said.strip() in seen.own_limit
    assert bool(seen.disrupted) is not ours


@pytest.mark.parametrize(
    ("reason", "facts"),
    [
        ("DeletionByTaintManager", (False, True)),
        ("DeletionByPodGC", (True, False)),
        ("PreemptionByScheduler", (False, False)),
    ],
)
def test_a_pod_tells_that_its_node_is_gone_and_that_its_node_is_tainted(reason: str, facts: tuple[bool, bool]) -> None:
    target = {"type": "DisruptionTarget", "status": "True", "reason": reason}
    seen = read_pod(pod({"conditions": [target]}))
    assert (seen.node_lost, seen.tainted) == facts


def test_a_pod_with_a_node_is_placed_whatever_a_scheduler_that_came_late_says() -> None:
    late = condition("PodScheduled", "False", reason="Unschedulable", message="no nodes")
    seen = read_pod(pod({"conditions": [late]}))
    assert (seen.scheduled, seen.obstacle) == (True, "")


def test_a_pod_that_a_queue_holds_back_is_gated() -> None:
    gate = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
    assert read_pod(pod({"conditions": [gate]})).gated


def test_a_pod_that_never_had_a_node_has_stopped_once_it_is_being_deleted() -> None:
    raw = pod({}, deletionTimestamp="2026-01-01T00:00:00Z") | {"spec": {}}
    assert read_pod(raw).stopped, "a finalizer may keep it in the list, but nothing of it will ever run"


@pytest.mark.parametrize(
    ("labels", "spec", "grouped"),
    [
        ({}, {}, False),
        ({"kueue.x-k8s.io/managed": "true"}, {}, True),
        ({}, {"schedulingGroup": {"podGroupName": "flux-uid-1-2"}}, True),
    ],
)
def test_a_pod_tells_whether_it_was_taken_for_a_gang(labels: Json, spec: Json, grouped: bool) -> None:  # noqa: FBT001
    assert read_pod(pod(labels=labels) | {"spec": spec}).grouped is grouped


def test_a_pod_has_failed_with_its_phase_and_not_before() -> None:
    ended = container(terminated={"exitCode": 1})
    phases = ("Running", "Failed", "Succeeded")
    assert [p for p in phases if read_pod(pod({"phase": p, "containerStatuses": ended})).failed] == ["Failed"]


@pytest.mark.parametrize(
    ("selector", "pinned"), [({}, False), ({"rack": "a"}, False), ({"rack": "a", "kubernetes.io/hostname": "b"}, True)]
)
def test_a_pod_tells_that_it_may_run_on_one_node_alone(selector: Json, pinned: bool) -> None:  # noqa: FBT001
    assert read_pod(pod() | {"spec": {"nodeSelector": selector}}).pinned is pinned


def test_of_our_own_structured_log_only_what_it_says_is_shown() -> None:
    log = 'Traceback\n{"time": "12:00", "event": "rank 1 ended by signal 9"}\n{broken'
    ended = read_pod(pod({"containerStatuses": container(terminated={"exitCode": 137, "message": log})})).ending
    assert ended is not None
    assert ended.message == "Traceback\nrank 1 ended by signal 9\n{broken"


def test_the_end_of_a_log_is_shown_in_whole_lines() -> None:
    log = "cut off by the kubelet " + "x" * 600 + "\nTraceback\nValueError: x\n"
    ended = read_pod(pod({"containerStatuses": container(terminated={"exitCode": 1, "message": log})})).ending
    assert ended is not None
    assert ended.message == "Traceback\nValueError: x"


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
    assert seen.ending.message == "the init container oarlock-agent ended with 1: no space left on device"


@pytest.mark.parametrize(
    ("recovery", "known"), [({"inPlace": "Auto"}, ("img",)), ({"inPlace": "Never"}, ()), ({}, ()), ("odd", ())]
)
def test_what_runs_in_a_living_pod_is_read_where_its_ranks_start_anew_in_it(
    recovery: object, known: tuple[str, ...]
) -> None:
    job_file = msgspec.json.encode({"recovery": recovery}).decode()
    raw = pod({"containerStatuses": container(running={})}, annotations={"oarlock.dev/job": job_file})
    raw["spec"]["containers"] = [{"name": "trainer", "image": "img"}]
    assert read_pod(raw).program.images == known
