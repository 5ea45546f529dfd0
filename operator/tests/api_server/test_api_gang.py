"""Gang systems against a real API server: groups that it takes, queues that hold pods back, groups that go.

No scheduler of theirs runs here, as some do in tests/gangs. Their kinds are those of their own sources (gang_crds.py): they
know what Oarlock writes, and it lives with what they do to pods.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from gang_crds import GATE, LIKE_KUEUE, QUEUE, served
from gangs import JOBS, PODS, SETTINGS, Gang
from processes import ROOT, Api, Resident, operator

from oarlock_api.manifest import load_all
from oarlock_local.patience import eventually
from oarlock_local.sources import SourceMissing

pytestmark = pytest.mark.cluster
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
POLICIES = "/apis/admissionregistration.k8s.io/v1"
SYSTEMS = {
    "scheduling.volcano.sh/v1beta1": {"gang": "Volcano", "queue": "team", "topology": {"requiredKey": "leaf"}},
    "scheduling.x-k8s.io/v1alpha1": {"gang": "Coscheduling", "schedulerName": "together"},
    "scheduling.run.ai/v2alpha2": {"gang": "KAI", "queue": "team", "queuePriorityClassName": "high"},
}


@pytest.fixture(scope="module")
def kinds() -> list[dict[str, Any]]:
    """The definitions of all systems' kinds."""
    try:
        return served()
    except SourceMissing as reason:
        pytest.skip(str(reason))


def path_of(kind: dict[str, Any]) -> str:
    """Where the API server serves the newest version of a kind."""
    spec = kind["spec"]
    return f"/apis/{spec['group']}/{spec['versions'][-1]['name']}/{spec['names']['plural']}"


@pytest.fixture(scope="module")
def gang_systems(api: Api, kinds: list[dict[str, Any]]) -> Iterator[Api]:
    """All kinds are served; gone again before another file's tests, whose jobs leave the choice to Auto."""
    for kind in kinds:
        api.call("POST", CRDS, kind)
    paths = [path_of(kind) for kind in kinds]
    for path in paths:
        eventually(lambda path=path: api.find(path), path)
    yield api
    for kind in kinds:
        api.call("DELETE", f"{CRDS}/{kind['metadata']['name']}")
    for path in paths:
        eventually(lambda path=path: api.find(path) is None or None, f"the end of {path}")


@pytest.fixture(scope="module")
def at_work(
    gang_systems: Api, operators_kubeconfig: Path, resident: Resident, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Api]:
    """One operator for all these tests, that has found these systems at its start."""
    resident.stop()
    with operator(operators_kubeconfig, tmp_path_factory.mktemp("gang") / "operator.log", *SETTINGS):
        yield gang_systems


@pytest.fixture(scope="module")
def like_kueue(gang_systems: Api) -> Iterator[Api]:
    """Pods that name a queue are gated, by the API server itself."""
    kinds = ["mutatingadmissionpolicies", "mutatingadmissionpolicybindings"]
    for kind, body in zip(kinds, LIKE_KUEUE, strict=True):
        gang_systems.call("POST", f"{POLICIES}/{kind}", body)
    probe = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": "probe-", "labels": {QUEUE: "team"}},
        "spec": {"containers": [{"name": "probe", "image": "x"}]},
    }
    eventually(
        lambda: gang_systems.call("POST", f"{PODS}?dryRun=All", probe)["spec"].get("schedulingGates"),
        "the policy to hold",
    )
    yield gang_systems
    for kind, body in zip(kinds, LIKE_KUEUE, strict=True):
        gang_systems.call("DELETE", f"{POLICIES}/{kind}/{body['metadata']['name']}")


def groups(gang: Gang, system: str) -> dict[str, Any]:
    """The groups of a job, by attempt."""
    path = f"/apis/{system}/namespaces/default/podgroups?labelSelector=oarlock.dev/job={gang.name}"
    return {group["metadata"]["labels"]["oarlock.dev/attempt"]: group for group in gang.api.call("GET", path)["items"]}


def ungate(gang: Gang) -> None:
    """What Kueue does once its queue has room."""
    for name in gang.pods():
        gang.api.merge(f"{PODS}/{gang.name}-{name}", {"spec": {"schedulingGates": None}})


def test_each_attempt_has_a_group_that_its_pods_name_and_that_goes_with_it(at_work: Api) -> None:
    gangs = {system: Gang(at_work, scheduling=scheduling) for system, scheduling in SYSTEMS.items()}
    for system, gang in gangs.items():
        gang.wait_for_pods("1-0", "1-1")
        group = groups(gang, system)["1"]
        assert group["spec"]["minMember"] == 2
        assert group["metadata"]["ownerReferences"][0]["name"] == gang.name
        for pod in gang.pods().values():
            named = {**pod["metadata"]["labels"], **pod["metadata"].get("annotations", {})}
            assert group["metadata"]["name"] in named.values()
            assert pod["spec"]["schedulerName"] != "default-scheduler"
        gang.run()
        gang.end("1-1", 1)
    for system, gang in gangs.items():
        gang.run(2)
        eventually(lambda gang=gang, system=system: set(groups(gang, system)) == {"2"} or None, "the first group to go")
        for rank in (0, 1):
            gang.end(f"2-{rank}", 0)
    for system, gang in gangs.items():
        gang.wait_for_phase("Succeeded")
        eventually(lambda gang=gang, system=system: not groups(gang, system) or None, "the last group to go")


def test_a_gated_gang_is_queued_and_what_its_queue_takes_back_costs_no_budget(like_kueue: Api, at_work: Api) -> None:
    gang = Gang(at_work, scheduling={"queue": "team"})
    status = gang.wait_for_phase("Queued")
    assert status["resolved"]["gang"] == "Kueue"
    pods = gang.pods()
    assert {pod["metadata"]["labels"][QUEUE] for pod in pods.values()} == {"team"}
    name = pods["1-0"]["metadata"]["labels"]["kueue.x-k8s.io/pod-group-name"]
    workload = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": {"name": name}, "spec": {}}
    path = "/apis/kueue.x-k8s.io/v1beta2/namespaces/default/workloads"
    like_kueue.call("POST", path, workload)
    quota = {
        "type": "QuotaReserved",
        "status": "False",
        "reason": "Pending",
        "message": "insufficient unused quota for nvidia.com/gpu",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    like_kueue.merge(f"{path}/{name}/status", {"status": {"conditions": [quota]}})
    eventually(lambda: "insufficient unused quota" in gang.status["message"] or None, gang.told("Kueue's words"))
    assert gang.condition("Scheduled")["reason"] == "Queued"
    ungate(gang)
    gang.run()
    eventually(lambda: gang.status["phase"] != "Queued" or None, gang.told("the end of the queue"))
    record = gang.status["attempts"][0]
    assert record["stageMilliseconds"]["queue"] > 0
    taken = {
        "type": "TerminationTarget",
        "status": "True",
        "reason": "WorkloadEvictedDueToPreempted",
        "message": "preempted",
    }
    for pod in ("1-0", "1-1"):
        known = gang.pods()[pod]["status"]["conditions"]
        gang.api.merge(f"{PODS}/{gang.name}-{pod}/status", {"status": {"conditions": [*known, taken]}})
    gang.api.call("DELETE", f"{PODS}/{gang.name}-1-0")
    eventually(lambda: gang.status["attempt"] == 2 or None, gang.told("the next attempt"))
    assert gang.status["attempts"][1]["reason"] == "Evicted"
    assert gang.status["restarts"]["infrastructure"] == gang.status["restarts"]["application"] == 0
    gang.wait_for_phase("Queued")
    assert gang.pods()["2-0"]["metadata"]["labels"]["kueue.x-k8s.io/pod-group-name"] != name
    assert gang.pods()["2-0"]["spec"]["schedulingGates"] == [{"name": GATE}]


@pytest.mark.usefixtures("like_kueue")
def test_the_example_waits_in_its_queue(at_work: Api, kinds: list[dict[str, Any]]) -> None:
    made = load_all((ROOT / "examples/kueue.yaml").read_text())
    plural = {"TrainingJob": "trainingjobs"} | {
        kind["spec"]["names"]["kind"]: kind["spec"]["names"]["plural"] for kind in kinds
    }
    for body in made:
        within = f"namespaces/{body['metadata']['namespace']}/" if "namespace" in body["metadata"] else ""
        path = f"/apis/{body['apiVersion']}/{within}{plural[body['kind']]}"
        at_work.call("POST", f"{path}?fieldValidation=Strict", body)
    job = f"{JOBS}/{made[-1]['metadata']['name']}"
    eventually(lambda: at_work.call("GET", job).get("status", {}).get("phase") == "Queued" or None, "the queue")
    at_work.call("DELETE", job)


def test_a_queue_that_takes_no_pods_is_told_and_so_is_a_gang_that_is_not_served(at_work: Api) -> None:
    gang = Gang(at_work, scheduling={"gang": "Kueue", "queue": "nobodys"})
    nowhere = Gang(at_work, scheduling={"gang": "Native"})
    eventually(lambda: nowhere.status.get("reason") == "GangUnavailable" or None, "the refusal")
    assert "scheduling.k8s.io" in nowhere.status["message"]
    assert nowhere.condition("Accepted")["status"] == "False"
    gang.wait_for_pods("1-0", "1-1")
    eventually(lambda: gang.condition("Degraded")["reason"] == "GangIgnored" or None, "the warning")


def test_a_field_that_a_system_does_not_know_is_refused(gang_systems: Api) -> None:
    for system in SYSTEMS:
        group = {"apiVersion": system, "kind": "PodGroup", "metadata": {"name": "wrong"}, "spec": {"minMembers": 2}}
        with pytest.raises(httpx.HTTPStatusError, match="400"):
            gang_systems.call("POST", f"/apis/{system}/namespaces/default/podgroups?fieldValidation=Strict", group)
