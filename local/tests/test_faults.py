"""Faults of nodes are real, and mend."""

import pytest

from oarlock_local import patience
from oarlock_local.cli import main
from oarlock_local.cluster import Cluster
from oarlock_local.errors import ClusterError

from .pods import apply, python_pod, wait_for_phase

pytestmark = pytest.mark.nodes


def _wait_ready(cluster: Cluster, status: str, *nodes: str) -> None:
    cluster.kubectl("wait", f"--for=condition=Ready={status}", *(f"node/{node}" for node in nodes), patience.KUBECTL)


def test_frozen_cut_off_and_dead_nodes_are_lost_and_come_back(local_cluster: Cluster) -> None:
    local_cluster.fault("freeze-kubelet", "node-1")
    local_cluster.fault("cut", "node-2")
    local_cluster.fault("kill", "node-3")
    _wait_ready(local_cluster, "Unknown", "node-1", "node-2", "node-3")
    local_cluster.fault("thaw-kubelet", "node-1")
    local_cluster.fault("heal", "node-2")
    local_cluster.fault("start", "node-3")
    _wait_ready(local_cluster, "True", "node-1", "node-2", "node-3")


def test_a_rebooted_node_keeps_its_gpus_and_images_and_runs_pods(local_cluster: Cluster) -> None:
    local_cluster.fault("reboot", "node-2")
    apply(local_cluster, python_pod("after-reboot", "print('alive')", node="node-2", gpus=2))
    try:
        wait_for_phase(local_cluster, "after-reboot", "Succeeded")
    finally:
        local_cluster.kubectl("delete", "pod", "after-reboot")


def test_the_other_nodes_stay_reachable_when_one_reboots(local_cluster: Cluster) -> None:
    # The bridge once took another link-layer address whenever a node came or went, and was unheard for 20 s.
    local_cluster.fault("reboot", "node-3")
    for node in ("node-1", "node-2"):
        assert local_cluster.kubectl("get", "--raw", f"/api/v1/nodes/{node}/proxy/healthz") == "ok"
    _wait_ready(local_cluster, "True", "node-3")


def test_a_node_that_is_on_cannot_be_switched_on(local_cluster: Cluster) -> None:
    with pytest.raises(ClusterError, match="node-1 is running already"):
        local_cluster.fault("start", "node-1")


def test_the_command_says_what_it_did_and_which_pods_of_gangs_were_on_the_node(
    local_cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    apply(local_cluster, python_pod("ranked", "import signal; signal.pause()", node="node-2"))
    try:
        local_cluster.kubectl("label", "pod", "ranked", "oarlock.dev/job=flux")
        command = ["--state-dir", str(local_cluster.spec.folder.root.parent), "fault", local_cluster.name]
        assert main([*command, "heal", "node-2"]) == 0
        told = "pods of gangs on node-2: default/ranked; oarlock why -n default ranked tells what becomes of it"
        assert capsys.readouterr().out == f"done: heal node-2\n{told}\n"
        assert main([*command, "mend-gpu", "node-1", "--gpu", "1"]) == 0
        printed = capsys.readouterr().out
        assert printed.startswith("done: mend-gpu node-1 (gpu 1)\nno pod of a gang is on node-1; on other nodes: ")
        assert "default/ranked on node-2" in printed
    finally:
        local_cluster.kubectl("delete", "pod", "ranked", "--grace-period=1")
