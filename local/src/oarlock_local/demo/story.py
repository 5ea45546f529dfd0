"""What the demo does, in its order, and what must hold for it to end well."""

# ruff: noqa: T201

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oarlock_local.cluster import Cluster, running
from oarlock_local.demo.inputs import make_inputs
from oarlock_local.demo.install import apply_operator
from oarlock_local.demo.job import Disappointed, JobView
from oarlock_local.demo.output import CLAIM, make_output
from oarlock_local.demo.page import page
from oarlock_local.demo.table import attempts_table
from oarlock_local.launch import default_shares
from oarlock_local.machine import require

NAME = "demo"
BREAK_AT_STEP = 80

FIRST_CHECKPOINT = 25
"""intervalSteps of examples/trainingjob.yaml."""
VICTIM, GPU = "flux-1-1", 1
FALLEN_OFF_THE_BUS = 79
"""The XID of it."""


def tell(root: Path) -> None:
    """Run the demo. Raises LocalError where the machine cannot, Disappointed where a promise did not hold."""
    print("A 3-node Kubernetes on this machine, a 2-node FLUX.1 job on simulated GPUs, one broken GPU.")
    began = time.monotonic()
    with stage(root) as scene:
        view = _train_and_break(scene.cluster, root)
        _verdict(view)
        model = _keep_model(scene.output, view, root)
    print()
    print(attempts_table(view.status))
    print(f"\nThe model is in {model} (diffusers format); all of it took {time.monotonic() - began:.0f} s.")
    print(f"What the job left, attempt by attempt: .venv/bin/oarlock why --path {model.parent}")
    print("To look around with the page, and to break more: make demo-page")


@dataclass(frozen=True, slots=True)
class Scene:
    """The cluster with the operator on it, the folder behind the job's claim, and the page's link."""

    cluster: Cluster
    output: Path
    page: str


@contextmanager
def stage(root: Path) -> Iterator[Scene]:
    """All that a job needs here, for the length of the block. Raises LocalError where the machine cannot."""
    require(nodes=True)
    with ThreadPoolExecutor(1) as pool:
        inputs: Future[Path] = pool.submit(make_inputs)
        started = time.monotonic()
        with running(
            NAME, nodes=3, gpus=2, shares=[*default_shares(), root], report=lambda line: say("", line)
        ) as cluster:
            say("cluster", f"3 nodes Ready in {time.monotonic() - started:.1f} s")
            print(f"            look for yourself: export KUBECONFIG={cluster.kubeconfig}; .venv/bin/oarlock ls")
            started = time.monotonic()
            apply_operator(cluster, root)
            say("operator", f"ready in {time.monotonic() - started:.1f} s, a pod like any other")
            output = make_output(cluster, root, inputs.result())
            pictures = len(list((output / "data/photos").glob("*.png")))
            say("inputs", f"a small FLUX.1 and {pictures} photographs with captions, in the claim {CLAIM}")
            print(f"            meanwhile: .venv/bin/oarlock why --path {output}/flux", flush=True)
            with page(cluster, output) as link:
                if link:
                    say("page", link)
                yield Scene(cluster, output, link)


def say(what: str, words: str) -> None:
    """One line of the story."""
    print(f" {what:<10} {words}", flush=True)


def _train_and_break(cluster: Cluster, root: Path) -> JobView:
    cluster.kubectl("apply", "-f", str(root / "examples/trainingjob.yaml"))
    say("job", "kubectl apply -f examples/trainingjob.yaml")
    print()
    with JobView(cluster, "default", "flux") as view:
        view.follow(lambda status: _step(status) >= 1, "the first step")
        stages = view.attempt(1)["stageMilliseconds"]
        view.note(f"first step {sum(stages.values()) / 1000:.1f} s after the operator saw the job")
        view.follow(
            lambda status: _step(status) >= BREAK_AT_STEP and "latestCheckpoint" in status,
            f"step {BREAK_AT_STEP} and a checkpoint",
        )
        node = cluster.kubectl("get", "pod", VICTIM, "-o", "jsonpath={.spec.nodeName}")
        cluster.fault("gpu", node, gpu=GPU, xid=FALLEN_OFF_THE_BUS)
        view.note(f"fault injected: GPU {GPU} of {node} falls off the bus (XID {FALLEN_OFF_THE_BUS})")
        view.follow(lambda status: status.get("attempt") == 2, "the second attempt")
        fault = view.status["lastFault"]
        view.note(f"{fault['nodeName']}: verdict {fault['verdict']}: {view.status['message'][:150]}")
        view.follow(lambda status: bool(status.get("cordonedNodes")), "the cordon")
        view.note(f"{view.status['cordonedNodes'][0]['name']} is cordoned; attempt 2 starts elsewhere")
        view.follow(lambda status: "resumedFromStep" in status["attempts"][-1], "training again")
        again = view.attempt(2)
        view.note(f"training again from step {again['resumedFromStep']}, {again.get('lostSteps', 0)} steps to redo")
        view.follow(lambda status: "completionTime" in status, "the end")
        return view


def _step(status: dict[str, Any]) -> int:
    return int((status.get("progress") or {}).get("step") or 0)


def _verdict(view: JobView) -> None:
    """Every promise of the demo, looked at once more in the job's own status."""
    status = view.status
    if status["phase"] != "Succeeded":
        raise Disappointed(f"the job ended as {status['phase']}: {status.get('reason')}: {status.get('message')}")
    if [attempt["number"] for attempt in status["attempts"]] != [1, 2]:
        raise Disappointed(f"two attempts were expected, there were {len(status['attempts'])}")
    broken = status["lastFault"]["nodeName"]
    if [entry["name"] for entry in status.get("cordonedNodes", [])] != [broken]:
        raise Disappointed(f"{broken} should have been cordoned, and no other node: {status.get('cordonedNodes')}")
    if broken in view.attempt(2).get("nodeNames", []):
        raise Disappointed(f"the second attempt ran on {broken}, whose GPU is broken")
    resumed = view.attempt(2).get("resumedFromStep", 0)
    if resumed < FIRST_CHECKPOINT:
        raise Disappointed(f"the second attempt began at step {resumed}, not at a checkpoint")


def _keep_model(output: Path, view: JobView, root: Path) -> Path:
    """Copy the model and what tells of its training out of the cluster's volume, which goes with the cluster."""
    made = output / Path(view.status["output"]["relativePath"]) / "model"
    if not (made / "model_index.json").is_file():
        raise Disappointed(f"there is no exported model in {made}")
    kept = root / "out/demo"
    shutil.rmtree(kept, ignore_errors=True)
    shutil.copytree(made, kept / "model")
    for folder in ("reports", ".oarlock"):
        shutil.copytree(made.parent / folder, kept / folder)
    shutil.copy(made.parent / "metrics.jsonl", kept)
    return kept / "model"
