"""Suspend, deadlines and retention against a real API server: what is refused, what is kept, what goes."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from gangs import JOBS, LEASE, PODS, SETTINGS, Gang
from processes import Api, ApiRefused, operator

from oarlock_local.patience import eventually
from oarlock_local.processes import children, program_of

if TYPE_CHECKING:
    from oarlock_local.cluster import Cluster

NOWHERE = ("nowhere-0", "nowhere-1")
"""Nodes without kubelets: their pods stay until the test removes them."""
pytestmark = pytest.mark.cluster


def suspend(gang: Gang, *, wanted: bool = True, **changes: object) -> None:
    gang.api.merge(f"{JOBS}/{gang.name}", {"spec": {"suspend": wanted, **changes}})


def stop_all(gang: Gang) -> None:
    """What kubelets do with pods that are told to stop."""
    for name, pod in gang.pods().items():
        if "deletionTimestamp" in pod["metadata"]:
            gang.end(name, 86)
            gang.remove(name)


def test_a_job_is_changed_while_suspended_and_stopped_and_only_then(with_operator: Api) -> None:
    gang = Gang(with_operator)
    gang.run(nodes=NOWHERE)
    with pytest.raises(ApiRefused, match="change only while no pod runs"):
        gang.api.merge(f"{JOBS}/{gang.name}", {"spec": {"nodes": 3}})
    suspend(gang)
    eventually(lambda: all("deletionTimestamp" in p["metadata"] for p in gang.pods().values()) or None, "deletion")
    graces = {pod["metadata"]["deletionGracePeriodSeconds"] for pod in gang.pods().values()}
    assert graces == {300}, "their own grace, to save in"
    with pytest.raises(ApiRefused, match="change only while no pod runs"):
        gang.api.merge(f"{JOBS}/{gang.name}", {"spec": {"nodes": 3}})
    stop_all(gang)
    gang.wait_for_phase("Suspended")
    gang.api.merge(f"{JOBS}/{gang.name}", {"spec": {"nodes": 3}})
    suspend(gang, wanted=False)
    gang.wait_for_pods("2-0", "2-1", "2-2")
    status = gang.wait_for_phase("Starting")
    assert (status["attempt"], status["restartCount"], status["attempts"][-1]["reason"]) == (2, 0, "Resumed")
    assert {"Suspending", "Suspended", "Resumed"} <= gang.events()


def test_a_pod_that_was_evicted_with_an_hour_to_save_is_told_to_hurry_once_its_gang_is_dead(with_operator: Api) -> None:
    gang = Gang(with_operator)
    gang.run(nodes=NOWHERE)
    gang.api.call("DELETE", f"{PODS}/{gang.name}-1-0", {"gracePeriodSeconds": 3600})
    gang.end("1-1", 1)
    eventually(lambda: gang.pods()["1-0"]["metadata"]["deletionGracePeriodSeconds"] == 5 or None, "the short grace")
    gang.remove("1-0")
    gang.wait_for_pods("2-0", "2-1")


def test_a_suspension_outlives_the_operator(as_operator: Path, api: Api, tmp_path: Path) -> None:
    with operator(as_operator, tmp_path / "first.log", *SETTINGS) as first:
        gang = Gang(api)
        gang.run(nodes=NOWHERE)
        suspend(gang)
        eventually(lambda: gang.status.get("recovery", {}).get("stage") == "Suspending" or None, "intent")
        first.send_signal(signal.SIGKILL)
        first.wait()
    api.call("DELETE", LEASE)  # as if it had run out
    suspend(gang, wanted=False)
    stop_all(gang)
    with operator(as_operator, tmp_path / "second.log", *SETTINGS):
        eventually(lambda: stop_all(gang) or sorted(gang.pods()) == ["2-0", "2-1"] or None, "stopping")
        assert gang.status["attempt"] == 2


def test_a_job_that_is_made_suspended_has_no_pods(with_operator: Api) -> None:
    gang = Gang(with_operator, suspend=True)
    status = gang.wait_for_phase("Suspended")
    assert "startTime" not in status
    assert not gang.pods()


def test_the_active_deadline_stops_the_pods_before_it_says_failed(with_operator: Api) -> None:
    gang = Gang(with_operator, activeDeadlineSeconds=2)
    gang.run(nodes=NOWHERE)
    eventually(lambda: all("deletionTimestamp" in p["metadata"] for p in gang.pods().values()) or None, "deletion")
    assert "completionTime" not in gang.status
    stop_all(gang)
    status = gang.wait_for_phase("Failed")
    assert (status["reason"], "completionTime" in status) == ("DeadlineExceeded", True)


def test_a_gang_that_finds_no_node_says_what_is_missing(with_operator: Api) -> None:
    gang = Gang(with_operator, scheduling={})
    eventually(lambda: gang.condition("Scheduled")["reason"] == "Unschedulable" or None, "the scheduler's words")
    assert gang.condition("Scheduled")["message"], "the scheduler's words"


def test_a_job_of_another_manager_is_left_alone(with_operator: Api) -> None:
    other = Gang(with_operator, managedBy="kueue.x-k8s.io/multikueue")
    ours = Gang(with_operator)
    ours.wait_for_pods("1-0", "1-1")
    assert other.status == {"observedGeneration": -1}
    assert not other.pods()


def test_a_finished_job_goes_with_its_pods_after_its_ttl(with_operator: Api) -> None:
    gang = Gang(with_operator, ttlSecondsAfterFinished=60)
    gang.run()
    for rank in (0, 1):
        gang.end(f"1-{rank}", 0)
    gang.wait_for_phase("Succeeded")
    # An hour ago, as far as the status says: tests do not wait for a minute.
    gang.api.merge(f"{JOBS}/{gang.name}/status", {"status": {"completionTime": "2026-01-01T00:00:00Z"}})
    eventually(lambda: not gang.exists() or None, "the job to go")


@pytest.mark.parametrize("policy", ["Foreground", "Background"])
def test_deletion_takes_the_pods_along_in_either_way(with_operator: Api, policy: str) -> None:
    gang = Gang(with_operator)
    gang.wait_for_pods("1-0", "1-1")
    gang.api.call("DELETE", f"{JOBS}/{gang.name}", {"propagationPolicy": policy})
    eventually(lambda: not (gang.exists() or gang.pods()) or None, "everything to go")


@pytest.fixture
def stopped_collector(control_plane: Cluster) -> Iterator[None]:
    """Kubernetes' garbage collector, and all other controllers, do nothing for the length of the test."""
    supervisor = json.loads(control_plane.spec.folder.supervisor.read_text())["pid"]
    (manager,) = (pid for pid in children(supervisor) if program_of(pid) == "kube-controller-manager")
    os.kill(manager, signal.SIGSTOP)
    yield
    os.kill(manager, signal.SIGCONT)


@pytest.mark.usefixtures("stopped_collector")
def test_pods_of_a_deleted_job_go_though_the_garbage_collector_does_not_get_to_them(with_operator: Api) -> None:
    gang = Gang(with_operator)
    gang.wait_for_pods("1-0", "1-1")
    gang.api.call("DELETE", f"{JOBS}/{gang.name}", {"propagationPolicy": "Background"})
    gang.wait_for_pods()


def test_pods_that_a_person_orphaned_stay(with_operator: Api) -> None:
    orphaned, deleted = Gang(with_operator), Gang(with_operator)
    orphaned.wait_for_pods("1-0", "1-1")
    deleted.wait_for_pods("1-0", "1-1")
    orphaned.api.call("DELETE", f"{JOBS}/{orphaned.name}", {"propagationPolicy": "Orphan"})
    eventually(lambda: not orphaned.exists() or None, "the job to go")
    # What the operator hears later it does later.
    deleted.api.call("DELETE", f"{JOBS}/{deleted.name}", {"propagationPolicy": "Background"})
    deleted.wait_for_pods()
    assert sorted(orphaned.pods()) == ["1-0", "1-1"]
    assert not any("deletionTimestamp" in pod["metadata"] for pod in orphaned.pods().values())


def test_a_volume_that_cannot_be_mounted_is_told_in_the_kubelets_words(with_operator: Api) -> None:
    gang = Gang(with_operator)
    gang.wait_for_pods("1-0", "1-1")
    for rank, node in enumerate(NOWHERE):
        gang.bind(f"1-{rank}", node)
    eventually(lambda: gang.status.get("recovery", {}).get("stage") == "Start" or None, "the stage")
    pod = gang.pods()["1-1"]["metadata"]
    event = {
        "metadata": {"generateName": "x"},
        "involvedObject": {"kind": "Pod", "name": pod["name"], "namespace": "default", "uid": pod["uid"]},
        "type": "Warning",
        "reason": "FailedMount",
        "message": "mount.nfs: access denied by server",
        "lastTimestamp": "2026-01-01T00:00:00Z",
    }
    with_operator.call("POST", "/api/v1/namespaces/default/events", event)
    # A while ago, as far as the status says: tests do not wait that long.
    a_while_ago = (datetime.now(UTC) - timedelta(minutes=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    gang.api.merge(f"{JOBS}/{gang.name}/status", {"status": {"recovery": {"stageStartTime": a_while_ago}}})
    eventually(lambda: "mount.nfs" in gang.condition("Running").get("message", "") or None, "its words")
    assert gang.condition("Running")["reason"] == "FailedMount"
    assert gang.condition("StorageReady")["reason"] == "VolumeNotReady"
    assert "`exportfs -v`" in gang.condition("StorageReady")["message"]
