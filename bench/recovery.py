"""Fault -> training again, stage by stage and fault by fault, in a two-node job on three local nodes, several times each.

    .venv/bin/python bench/recovery.py [--runs 3] [--faults NAME ...]

The job is examples/trainingjob.yaml with real DeepSpeed ranks on the CPU, GPUs and their driver are pretended. Each run is
a job of its own, on whole nodes. Prints a table for each fault and writes bench/results/recovery.json. Two cores run four
ranks, a control plane and three nodes: figures of one machine.

Columns: the stages that the job's own status tells, and by this machine's clock, from the moment that the fault is done:
`report` until the agent's verdict (of the pod that was hit, by its own report), `cordon` until the node is cordoned, `wall`
until the trainer has written the first new step. Of a hang, `verdict` is until the first agent has found it, and `wall`
counts from there.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.e2e.jobs import Jobs  # noqa: E402

from oarlock_api.contract.exit_codes import ExitCode  # noqa: E402
from oarlock_local.api import ApiServer  # noqa: E402
from oarlock_local.binaries import HELM  # noqa: E402
from oarlock_local.build import built  # noqa: E402
from oarlock_local.cluster import Cluster, running  # noqa: E402
from oarlock_local.demo.crash import kill_rank  # noqa: E402
from oarlock_local.demo.inputs import make_inputs  # noqa: E402
from oarlock_local.demo.install import VALUES, install_operator  # noqa: E402
from oarlock_local.demo.output import make_output  # noqa: E402
from oarlock_local.launch import default_shares  # noqa: E402

STAGES = ("detect", "decide", "drain", "schedule", "start", "firstStep")
OURS = ("report", "cordon", "verdict", "wall")
HANG_SECONDS = 10
HIT = 1
"""The node's rank whose pod is hit."""


@dataclass(frozen=True, slots=True)
class Fault:
    """`do` hits a pod on a node; `cordons`: the node is to be cordoned for it. `recovery`: of the job's spec.

    `hangs`: agents are to find it, once no step came for long.
    """

    words: str
    do: Callable[[Jobs, str, str], None]
    cordons: bool = False
    recovery: dict[str, Any] = field(default_factory=dict)
    hangs: bool = False

    @property
    def in_place(self) -> bool:
        """Whether the pods stay."""
        return self.recovery.get("inPlace") == "Auto"


def _gpu(**what: Any) -> Callable[[Jobs, str, str], None]:
    return lambda jobs, _pod, node: jobs.cluster.fault("gpu", node, gpu=1, **what)


FAULTS = {
    "rank": Fault("a rank is killed", lambda jobs, pod, _node: kill_rank(jobs.cluster, pod, 3)),
    "rank-in-place": Fault(
        "a rank is killed, and all start anew in their pods",
        lambda jobs, pod, _node: kill_rank(jobs.cluster, pod, 3),
        recovery={"inPlace": "Auto"},
    ),
    "rank-from-memory": Fault(
        "a rank is killed, and all start anew in their pods, from memory",
        lambda jobs, pod, _node: kill_rank(jobs.cluster, pod, 3),
        recovery={"inPlace": "Auto", "memory": {"everySteps": 1}},
    ),
    "hang": Fault(
        "a rank is stopped, and found hanging",
        lambda jobs, pod, _node: jobs.signal_rank(pod, 3, "STOP"),
        recovery={"hangSeconds": HANG_SECONDS},
        hangs=True,
    ),
    "hang-in-place": Fault(
        "a rank is stopped, found hanging, and all start anew in their pods, from memory",
        lambda jobs, pod, _node: jobs.signal_rank(pod, 3, "STOP"),
        recovery={"hangSeconds": HANG_SECONDS, "inPlace": "Auto", "memory": {"everySteps": 1}},
        hangs=True,
    ),
    "xid-79": Fault("a GPU falls off the bus (XID 79)", _gpu(xid=79), cordons=True),
    "xid-94": Fault("a contained memory error (XID 94)", _gpu(xid=94)),
    "action": Fault("the driver asks for a reset, without an XID", _gpu(recovery_action=1), cordons=True),
    "lost": Fault("a GPU is lost, and no event tells", _gpu(lost=True), cordons=True),
    "pod": Fault(
        "a pod is deleted by force",
        lambda jobs, pod, _node: jobs.cluster.kubectl("delete", "pod", pod, "--force", "--grace-period=0") and None,
    ),
    "eviction": Fault("a pod is evicted: it saves first", lambda jobs, pod, _node: jobs.evict(pod)),
}


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--faults", nargs="*", choices=FAULTS, default=list(FAULTS))
    options = parser.parse_args()
    inputs, shares = make_inputs(), [*default_shares(), ROOT]
    with (
        tempfile.TemporaryDirectory() as folder,
        running("bench", nodes=3, gpus=2, shares=shares, state=Path(folder)) as cluster,
        ApiServer(cluster.kubeconfig) as api,
    ):
        # One namespace has many faults here within an hour.
        brakes = {"CORDON_MAX_NODES": 1000, "CORDON_NAMESPACE_MAX_NODES": 1000}
        values = {**VALUES, "settings": {**VALUES["settings"], **brakes}}
        install_operator(cluster, ROOT, built(HELM), values=values)
        jobs = Jobs(cluster, make_output(cluster, ROOT, inputs), api)
        starts: list[dict[str, float]] = []
        recoveries: dict[str, list[dict[str, float]]] = {name: [] for name in options.faults}
        for run in range(options.runs):  # round by round: a machine that slows down slows all of them
            for name in options.faults:
                start, recovery = _measure(jobs, api, FAULTS[name], f"{name}-{run}")
                starts.append(start)
                recoveries[name].append(recovery)
                print(f"  {name} {run + 1}/{options.runs}: {recovery['wall']:.1f} s", file=sys.stderr, flush=True)
    _table("kubectl apply -> first step", starts)
    for name, runs in recoveries.items():
        _table(f"{FAULTS[name].words} -> training again", runs)
    results = ROOT / "bench/results"
    results.mkdir(exist_ok=True)
    (results / "recovery.json").write_text(json.dumps({"starts": starts, "recoveries": recoveries}, indent=1) + "\n")


def _measure(jobs: Jobs, api: ApiServer, fault: Fault, name: str) -> tuple[dict[str, float], dict[str, float]]:
    """Start a job, hit it, wait until it trains again; seconds of both."""
    metrics = jobs.output / name / "metrics.jsonl"
    applied = time.monotonic()
    jobs.apply(name, steps=100_000, every=20, recovery=fault.recovery)
    _wait_for_step(metrics, attempt=1)
    start = {"wall": time.monotonic() - applied}
    jobs.wait(name, "a checkpoint", lambda status: "latestCheckpoint" in status)
    pod = f"{name}-1-{HIT}"
    node = api.get(f"/api/v1/namespaces/default/pods/{pod}")["spec"]["nodeName"]
    hit, hit_at, before = time.monotonic(), time.time(), metrics.stat().st_size
    fault.do(jobs, pod, node)
    recovery: dict[str, float] = {}
    if fault.cordons:
        while not api.get(f"/api/v1/nodes/{node}")["spec"].get("unschedulable"):
            time.sleep(0.02)
        recovery["cordon"] = time.monotonic() - hit
    if fault.hangs:
        recovery["verdict"] = _verdict_at(jobs, name) - hit_at
        hit += recovery["verdict"]
    if fault.in_place:
        _wait_for_start(metrics, before)
        recovery["wall"] = time.monotonic() - hit
        jobs.delete(name)
        return start, recovery
    _wait_for_step(metrics, attempt=2)
    recovery["wall"] = time.monotonic() - hit
    report = jobs.output / name / f".oarlock/reports/1-{HIT}.json"
    if report.exists():
        recovery["report"] = datetime.fromisoformat(json.loads(report.read_text())["detectedAt"]).timestamp() - hit_at
    status = jobs.wait(name, "the stages", lambda s: "resumedFromStep" in s["attempts"][-1])
    first, second = (attempt["stageMilliseconds"] for attempt in status["attempts"][:2])
    jobs.delete(name)
    _mend(jobs.cluster, node)
    return start | _seconds(first), recovery | _seconds(second)


def _seconds(stages: dict[str, int]) -> dict[str, float]:
    return {stage: stages[stage] / 1000 for stage in STAGES if stage in stages}


def _mend(cluster: Cluster, node: str) -> None:
    cluster.fault("mend-gpu", node)
    cluster.kubectl("uncordon", node)
    cluster.kubectl("annotate", "node", node, "oarlock.dev/cordoned-", "oarlock.dev/gpu-strikes-")
    time.sleep(2)


def _verdict_at(jobs: Jobs, name: str) -> float:
    """When an agent of the gang first said that its ranks hang; seconds since the epoch."""
    while True:
        logs = (jobs.cluster.kubectl("logs", f"{name}-1-{rank}") for rank in (0, HIT))
        lines = [json.loads(line) for log in logs for line in log.splitlines() if f'"code": {ExitCode.HANG}' in line]
        if lines:
            return min(datetime.fromisoformat(line["time"]).timestamp() for line in lines)
        time.sleep(0.3)


def _wait_for_step(metrics: Path, *, attempt: int) -> None:
    """Until the trainer has written the first step of an attempt: the end of what is measured, on this machine's clock."""
    mark = f'"attempt":{attempt},'
    while not (metrics.exists() and mark in metrics.read_text()):
        time.sleep(0.02)


def _wait_for_start(metrics: Path, offset: int) -> None:
    """Until ranks that started after this byte of the file have written a step."""
    while '"loss":' not in metrics.read_text()[offset:].partition('"startSeconds":')[2]:
        time.sleep(0.02)


def _table(title: str, runs: list[dict[str, float]]) -> None:
    columns = [name for name in (*STAGES, *OURS) if any(name in run for run in runs)]
    print(f"\n{title}, seconds\nrun     " + "".join(f"{name:>10}" for name in columns))
    for number, run in enumerate(runs, 1):
        print(f"{number:<8}" + "".join(_cell([run[name]] if name in run else []) for name in columns))
    print(f"{'median':<8}" + "".join(_cell([run[name] for run in runs if name in run]) for name in columns))


def _cell(figures: list[float]) -> str:
    """The median of what was measured; a dash where nothing was: a figure that is missing is no 0."""
    return f"{statistics.median(figures):>10.2f}" if figures else f"{'-':>10}"


if __name__ == "__main__":
    main()
