"""The words of real kubelets and runtimes, as Kubernetes 1.36.3 and containerd 2.4.2 have them in their sources."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import msgspec
import pytest
from jobs import job, spec
from memory_api import Json
from raw_pods import container, pod
from worlds import World

from oarlock_api.contract.exit_codes import FailureClass
from oarlock_operator.faults.classify import Avoid, Budget, classify
from oarlock_operator.model.observation import Ending, Pod
from oarlock_operator.nodes.troubled import TroubledNodes, read_node
from oarlock_operator.pods.pod_facts import RawPod
from oarlock_operator.pods.pod_facts import read_pod as read_raw_pod

REFUSALS = {
    # kubelet.go, rejectPod; the reasons of lifecycle/predicate.go, handlers.go and features_linux.go
    "NodeAffinity": "Pod was rejected: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
    "OutOfnvidia.com/gpu": "Pod was rejected: Node didn't have enough resource: nvidia.com/gpu, requested: 8, used: 8, "
    "capacity: 8",
    "OutOfcpu": "Pod was rejected: Node didn't have enough resource: cpu, requested: 64000, used: 900, capacity: 64000",
    "InvalidNodeInfo": "Pod was rejected: Kubelet cannot get node info.",
    "PodOSNotSupported": "Pod was rejected: Failed to admit pod as the OS field doesn't match node OS",
    "SupplementalGroupsPolicyNotSupported": "Pod was rejected: SupplementalGroupsPolicy=Strict is not supported in this node",
    "UnexpectedAdmissionError": "Pod was rejected: Allocate failed due to no healthy devices present; cannot allocate "
    "unhealthy devices nvidia.com/gpu, which is unexpected",
    "UnknownReason": "Pod was rejected: GeneralPredicates failed due to unknown reason, which is unexpected.",
    "AppArmor": "Pod was rejected: Cannot enforce AppArmor: AppArmor is not enabled on the host",
    "PodLevelResourcesNotSupported": "Pod was rejected: PodLevelResources feature gate is disabled",
    "PodFeatureUnsupported": "Pod was rejected: Pod requires node features that are not available: UserNamespaces",
    # cm/topologymanager, cm/cpumanager, cm/admission
    "TopologyAffinityError": "Pod was rejected: Resources cannot be allocated with Topology locality",
    "SMTAlignmentError": "Pod was rejected: SMT Alignment Error: requested 3 cpus not multiple cpus per core = 2",
    "EmptyPodSharedPoolError": "Pod was rejected: pod rejected, pod has shared init containers but no cpus "
    "available for them",
    # volumemanager, nodeshutdown, sysctl
    "VolumeAttachmentLimitExceeded": "Pod was rejected: Node has reached its volume attachment limit, rejecting pod. "
    "unmounted volumes=[output], unattached volumes=[output], failed to process volumes=[]: exceeded",
    "NodeShutdown": "Pod was rejected: Pod was rejected as the node is shutting down.",
    "SysctlForbidden": 'Pod was rejected: forbidden sysctl: "net.core.somaxconn" not allowlisted',
    # eviction/eviction_manager.go, of a pod that comes to a node under pressure
    "Evicted": "Pod was rejected: The node had condition: [DiskPressure]. ",
    # of a release to come, or of somebody else's kubelet
    "QuantumEntanglementLost": "Pod was rejected: try another universe",
}
UNSEEN = {
    "status_manager.go": {
        "exitCode": 137,
        "reason": "ContainerStatusUnknown",
        "message": "The container could not be located when the pod was terminated",
    },
    "kubelet_pods.go": {
        "exitCode": 137,
        "reason": "ContainerStatusUnknown",
        "message": "The container could not be located when the pod was deleted.  The container used to be Running",
    },
    "containerd's restart.go": {"exitCode": 255, "reason": "Unknown"},
}


def read_pod(raw: Json) -> Pod:
    return read_raw_pod(msgspec.convert(raw, RawPod))


@pytest.mark.parametrize("reason", REFUSALS)
def test_whatever_a_kubelet_refuses_a_pod_for_is_infrastructures_and_its_node_is_rather_avoided(reason: str) -> None:
    status = {"phase": "Failed", "reason": reason, "message": REFUSALS[reason]}
    fault = classify(read_pod(pod(status)))
    assert fault is not None
    assert (fault.failure_class, fault.budget, fault.avoid) == (
        FailureClass.PREFLIGHT,
        Budget.INFRASTRUCTURE,
        Avoid.RATHER,
    )
    assert fault.reason == ("RefusedByNode" if reason == "Evicted" else reason)
    assert REFUSALS[reason].strip() in fault.message


def test_a_pod_that_ran_and_had_to_leave_for_its_nodes_pressure_costs_no_budget() -> None:
    status = {
        "phase": "Failed",
        "reason": "Evicted",
        "message": "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. ",
        "containerStatuses": container(terminated={"exitCode": 137, "reason": "Error"}),
    }
    fault = classify(read_pod(pod(status)))
    assert fault is not None
    assert (fault.reason, fault.budget) == ("Evicted", Budget.VOLUNTARY)


@pytest.mark.parametrize("source", UNSEEN)
def test_an_end_that_nobody_saw_is_no_programs_fault_and_the_node_is_rather_avoided(source: str) -> None:
    status = {"phase": "Failed", "containerStatuses": container(terminated=UNSEEN[source])}
    fault = classify(read_pod(pod(status)))
    assert fault is not None
    assert (fault.reason, fault.budget, fault.avoid) == ("EndUnknown", Budget.INFRASTRUCTURE, Avoid.RATHER)
    assert fault.killed_with_its_agent, "where the others' agents live, that pod alone is made anew"
    assert "nobody knows how it ended" in fault.message


@pytest.mark.parametrize("said", [{"exitCode": 255, "reason": "Error"}, {"exitCode": 137, "reason": "Error"}])
def test_a_program_may_end_with_these_codes_itself(said: dict[str, object]) -> None:
    fault = classify(read_pod(pod({"phase": "Failed", "containerStatuses": container(terminated=said)})))
    assert fault is not None
    assert (fault.failure_class, fault.budget) == (FailureClass.APPLICATION, Budget.APPLICATION)


def test_a_restart_is_told_where_a_watch_has_seen_the_boot_id_change_since_the_pod_was_placed() -> None:
    times = iter([datetime(2026, 1, 1, hour, tzinfo=UTC) for hour in (1, 2, 3)])
    nodes = TroubledNodes(clock=lambda: next(times))
    unseen = replace(
        read_pod(
            pod({"phase": "Failed", "containerStatuses": container(terminated=UNSEEN["containerd's restart.go"])})
        ),
        placed_at=datetime(2026, 1, 1, 0, 30, tzinfo=UTC),
    )

    def told(boot: str) -> str:
        raw = {"metadata": {"name": "node-b"}, "status": {"nodeInfo": {"bootID": boot}}}
        (seen,) = nodes.with_restarts([unseen], {"node-b": read_node(raw)})
        fault = classify(seen)
        assert fault is not None
        return fault.reason

    def note(boot: str) -> None:
        nodes.note({"metadata": {"name": "node-b"}, "status": {"nodeInfo": {"bootID": boot}}}, deleted=False)

    assert told("first") == "EndUnknown", "nobody knew the node before"
    note("first")
    assert told("first") == "EndUnknown"
    assert told("second") == "NodeRestarted", "read live before the watch told"
    note("second")
    assert told("second") == "NodeRestarted"
    unseen = replace(unseen, placed_at=datetime(2026, 1, 1, 5, tzinfo=UTC))
    assert told("second") == "EndUnknown", "the restart was before the pod"


def test_refusals_keep_apart_in_time_from_the_second_on_and_the_job_goes_elsewhere() -> None:
    world = World(job=job(spec=spec()))
    waits = []
    for _ in range(3):
        world.settle()
        pod_ = world.pod(0)
        refused = Ending(None, "TopologyAffinityError", REFUSALS["TopologyAffinityError"])
        world.pods[pod_.name] = replace(pod_, node="node-0", scheduled=True, ending=refused, failed=True)
        world.settle()
        recovery = world.job.status.recovery
        waits.append((recovery.not_before_time - world.now).total_seconds() if recovery.not_before_time else 0.0)
        world.kubelets()
        world.now = max(world.now, recovery.not_before_time or world.now)
    assert waits[0] == 0.0
    assert 0.0 < waits[1] < waits[2]
    assert [one.name for one in world.job.status.avoided_nodes] == ["node-0"]
    assert world.job.status.restarts.infrastructure == 3


@pytest.mark.parametrize("name", ["log-shipper", "secrets"])
def test_an_init_container_or_a_sidecar_that_cannot_start_is_what_a_pod_waits_for(name: str) -> None:
    states = {
        "log-shipper": {"running": {}},
        "secrets": {"waiting": {"reason": "PodInitializing"}},
        name: {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}},
    }
    initial = [{"name": each, "state": state} for each, state in states.items()]
    raw = pod({"initContainerStatuses": initial, "containerStatuses": container(waiting={"reason": "PodInitializing"})})
    raw["spec"]["initContainers"] = [{"name": "log-shipper", "restartPolicy": "Always"}, {"name": "secrets"}]
    assert read_pod(raw).obstacle == "ImagePullBackOff: not found"


def test_an_init_container_that_fails_is_named_and_a_sidecar_beside_it_is_not_blamed() -> None:
    raw = pod(
        {
            "phase": "Failed",
            "initContainerStatuses": [
                {"name": "log-shipper", "state": {"terminated": {"exitCode": 143}}},
                {"name": "secrets", "state": {"terminated": {"exitCode": 7, "message": "vault: permission denied"}}},
            ],
        }
    )
    raw["spec"]["initContainers"] = [{"name": "log-shipper", "restartPolicy": "Always"}, {"name": "secrets"}]
    seen = read_pod(raw)
    assert seen.ending is not None
    assert seen.ending.message == "the init container secrets ended with 7: vault: permission denied"
