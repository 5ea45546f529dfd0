"""The demo that stays: a job that trains for hours, its page, and faults on buttons, until Ctrl-C."""

# ruff: noqa: T201

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, Unpack

import yaml

from oarlock_local.api import ApiServer
from oarlock_local.cluster import Cluster
from oarlock_local.demo.buttons import Button, buttons
from oarlock_local.demo.crash import kill_rank
from oarlock_local.demo.story import FALLEN_OFF_THE_BUS, say, stage
from oarlock_local.errors import ClusterError
from oarlock_local.fault_report import what_was_done
from oarlock_local.nvml import GpuFault

STEPS = 1_000_000
PICTURES = {
    "everySteps": 100,
    "prompts": [{"name": "boat", "prompt": "a boat on a quiet lake"}],
    "resolutions": ["64x64"],
}


def keep(root: Path) -> None:
    """Run until Ctrl-C. Raises LocalError where the machine cannot."""
    print("A 3-node Kubernetes on this machine, a FLUX.1 job on simulated GPUs, its page, and faults on buttons.")
    with stage(root) as scene:
        scene.cluster.apply([job(root)])
        say("job", "examples/trainingjob.yaml with 1,000,000 steps and a picture at every 100th")
        if not scene.page:
            raise ClusterError(f"the page did not start: {scene.cluster.logs / 'page.log'} says why")
        with buttons(faults(scene.cluster), page=scene.page) as link:
            say("faults", link)
            say("", "Ctrl-C ends all of it")
            signal.pause()


def job(root: Path) -> dict[str, Any]:
    """The example as a job that has something to show for hours."""
    made: dict[str, Any] = yaml.safe_load((root / "examples/trainingjob.yaml").read_text())
    made["spec"]["training"] |= {"steps": STEPS, "validation": PICTURES}
    return made


def faults(cluster: Cluster) -> dict[str, Button]:
    """What can be done to the cluster, by a word for its address."""

    def on_last_node(kind: str, **what: Unpack[GpuFault]) -> Callable[[], str]:
        def do() -> str:
            node = running_ranks(cluster)[-1]["spec"]["nodeName"]
            cluster.fault(kind, node, **what)
            return what_was_done(kind, node, what)

        return do

    def kill_first_rank() -> str:
        pod = running_ranks(cluster)[0]["metadata"]["name"]
        kill_rank(cluster, pod, 0)
        return f"rank 0 in {pod} was killed"

    return {
        "gpu": Button(
            "A GPU falls off the bus",
            f"XID {FALLEN_OFF_THE_BUS}: the node is cordoned, and the job goes on elsewhere",
            on_last_node("gpu", gpu=1, xid=FALLEN_OFF_THE_BUS),
        ),
        "rank": Button("A rank is killed", "as by the kernel: the job starts anew on the same nodes", kill_first_rank),
        "cut": Button(
            "A node is cut off", "its link is down: half a minute until Kubernetes says so", on_last_node("cut")
        ),
        "mend": Button(
            "Repair everything",
            "links and GPUs; a node that was cordoned is given back on the page, under Nodes",
            lambda: repair(cluster),
        ),
    }


def running_ranks(cluster: Cluster) -> list[dict[str, Any]]:
    """The pods of the job that run, by rank. Raises ClusterError where none does."""
    with ApiServer(cluster.kubeconfig) as api:
        found: list[dict[str, Any]] = api.get("/api/v1/namespaces/default/pods?labelSelector=oarlock.dev/job=flux")[
            "items"
        ]
    running = [
        pod for pod in found if pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
    ]
    if not running:
        raise ClusterError("no pod of the job runs: wait until it trains again, or repair everything")
    return sorted(running, key=lambda pod: int(pod["metadata"]["labels"]["oarlock.dev/rank"]))


def repair(cluster: Cluster) -> str:
    """Mend all GPUs and links."""
    for node in cluster.nodes:
        cluster.fault("heal", node)
        cluster.fault("mend-gpu", node)
    return f"repaired: {', '.join(cluster.nodes)}"
