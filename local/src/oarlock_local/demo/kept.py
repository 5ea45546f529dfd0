"""The demo that stays: a job that trains for hours, its page, and faults on buttons, until Ctrl-C."""

# ruff: noqa: T201

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any, Unpack

import yaml

from oarlock_local.api import ApiServer
from oarlock_local.cluster import Cluster
from oarlock_local.demo.aims import IN_SECONDS, Aims
from oarlock_local.demo.buttons import Button, buttons
from oarlock_local.demo.crash import kill_rank
from oarlock_local.demo.install import NAMESPACE
from oarlock_local.demo.story import FALLEN_OFF_THE_BUS, GPU, say, stage
from oarlock_local.errors import ClusterError
from oarlock_local.fault_report import what_was_done, whom_it_meets
from oarlock_local.nvml import GpuFault

STEPS = 1_000_000
IN_PLACE = {"inPlace": "Auto", "memory": {"everySteps": "Auto"}}
"""What new processes mend costs no pod, and what a lost pod had in memory lies on the next node."""
PICTURES = {
    "everySteps": 100,
    "prompts": [{"name": "boat", "prompt": "a boat on a quiet lake"}],
    "resolutions": ["64x64"],
}
STEPS_TO_TAKE = """
 1. Open the page and choose the job flux. It trains after some 20 s:
      {page}
 2. Open the faults, press "A GPU falls off the bus", and see on the page how its pod is made anew elsewhere, in 10 to 30 s:
      {faults}
 3. Press "Repair everything" there; then uncordon the node on the page: Nodes, Uncordon.
 Ctrl-C here ends it, and clears everything away within seconds."""


def keep(root: Path) -> None:
    """Run until Ctrl-C. Raises LocalError where the machine cannot."""
    print("A 3-node Kubernetes on this machine, a FLUX.1 job on simulated GPUs, its page, and faults on buttons.")
    print("It is there in half a minute, and stays until Ctrl-C.")
    with stage(root) as scene:
        scene.cluster.apply([job(root)])
        say(
            "job",
            "examples/trainingjob.yaml with 1,000,000 steps, a picture at every 100th, and recovery.inPlace: Auto",
        )
        if not scene.page:
            raise ClusterError(f"the page did not start: {scene.cluster.logs / 'page.log'} says why")
        with buttons(faults(scene.cluster), page=scene.page) as link:
            print(STEPS_TO_TAKE.format(page=scene.page, faults=link), flush=True)
            signal.pause()


def job(root: Path) -> dict[str, Any]:
    """The example as a job that has something to show for hours."""
    made: dict[str, Any] = yaml.safe_load((root / "examples/trainingjob.yaml").read_text())
    made["spec"]["training"] |= {"steps": STEPS, "validation": PICTURES}
    made["spec"]["recovery"] = IN_PLACE
    return made


def faults(cluster: Cluster) -> dict[str, Button]:
    """What can be done to the cluster, by a word for its address."""

    def strike(kind: str, node: str, **what: Unpack[GpuFault]) -> str:
        met = whom_it_meets(cluster, kind, node)
        cluster.fault(kind, node, **what)
        return f"{what_was_done(kind, node, what)}; {met}"

    def break_gpu() -> str:
        return strike("gpu", aims(cluster).last.node, gpu=GPU, xid=FALLEN_OFF_THE_BUS)

    def tell_gpu() -> str:
        now = aims(cluster)
        pod, node = now.last
        how = f"strikes GPU {GPU} of {node}, below pod {pod} (XID {FALLEN_OFF_THE_BUS})"
        return f"{how}: {node} is cordoned, this pod alone is made anew while the others stand by, and {now.goes_on}"

    def kill_first_rank() -> str:
        pod, node = aims(cluster).first
        kill_rank(cluster, pod, 0)
        return f"done: rank 0 in pod default/{pod} on {node} was killed"

    def tell_rank() -> str:
        pod, node = aims(cluster).first
        return f"strikes rank 0, in pod {pod} on {node}, as the kernel would: {IN_SECONDS}"

    def cut_node() -> str:
        return strike("cut", aims(cluster).apart.node)

    def tell_cut() -> str:
        now = aims(cluster)
        pod, node = now.apart
        how = f"strikes the link of {node}, below pod {pod}"
        return f"{how}: within a minute Kubernetes says that the node is lost; its pod alone is made anew, and {now.goes_on}"

    return {
        "gpu": Button("A GPU falls off the bus", tell_gpu, break_gpu),
        "rank": Button("A rank is killed", tell_rank, kill_first_rank),
        "cut": Button("A node is cut off", tell_cut, cut_node),
        "mend": Button(
            "Repair everything",
            lambda: (
                "mends links and GPUs of all nodes; a node that is cordoned is uncordoned on the page: Nodes, Uncordon"
            ),
            lambda: repair(cluster),
        ),
    }


def aims(cluster: Cluster) -> Aims:
    """Whom a fault would strike now. Raises ClusterError where no pod of the job runs."""
    with ApiServer(cluster.kubeconfig) as api:
        return Aims.of(
            api.get("/api/v1/namespaces/default/pods?labelSelector=oarlock.dev/job=flux")["items"],
            nodes=api.get("/api/v1/nodes")["items"],
            operators=api.get(f"/api/v1/namespaces/{NAMESPACE}/pods")["items"],
        )


def repair(cluster: Cluster) -> str:
    """Mend all GPUs and links."""
    for node in cluster.nodes:
        cluster.fault("heal", node)
        cluster.fault("mend-gpu", node)
    return f"repaired: {', '.join(cluster.nodes)}"
