"""What the fault command says, where it needs no cluster."""

from typing import Any

import pytest

from oarlock_local.fault_report import RunningPod, gangs_of, running_pods, what_was_done
from oarlock_local.nvml import GpuFault


@pytest.mark.parametrize(
    ("kind", "target", "what", "words"),
    [
        ("cut", "node-2", {}, "done: cut node-2"),
        ("gpu", "node-2", {"gpu": 1, "xid": 79}, "done: gpu node-2 (gpu 1, xid 79)"),
        ("gpu", "node-2", {"remap_failed": True}, "done: gpu node-2 (remap-failed)"),
        ("freeze-apiserver", "", {}, "done: freeze-apiserver"),
    ],
)
def test_a_fault_is_told_in_one_line(kind: str, target: str, what: GpuFault, words: str) -> None:
    assert what_was_done(kind, target, what) == words


def test_a_fault_that_meets_no_gang_says_where_the_gangs_are() -> None:
    gang = [RunningPod("default/flux-1-1", "node-3"), RunningPod("default/flux-1-0", "node-2")]
    told = gangs_of("node-2", gang)
    assert told == "pods of gangs on node-2: default/flux-1-0; oarlock why -n default flux tells what becomes of it"
    anew = gangs_of("node-4", [RunningPod("default/flux-1-2-i3", "node-4")])
    assert anew == "pods of gangs on node-4: default/flux-1-2-i3; oarlock why -n default flux tells what becomes of it"
    apart = "no pod of a gang is on node-1; on other nodes: "
    assert gangs_of("node-1", gang) == f"{apart}default/flux-1-0 on node-2, default/flux-1-1 on node-3"
    assert gangs_of("node-1", []) == f"{apart}none"


def test_a_pod_that_has_ended_or_has_no_node_stands_nowhere() -> None:
    def pod(name: str, phase: str, **spec: str) -> dict[str, Any]:
        return {"metadata": {"namespace": "team", "name": name}, "spec": spec, "status": {"phase": phase}}

    pods = [
        pod("runs", "Running", nodeName="node-1"),
        pod("failed", "Failed", nodeName="node-1"),
        pod("waits", "Pending"),
    ]
    assert list(running_pods(pods)) == [RunningPod("team/runs", "node-1")]
