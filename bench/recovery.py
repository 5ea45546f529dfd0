"""Fault -> training again, stage by stage and fault by fault, in a two-node job on three local nodes, several times each.

    .venv/bin/python bench/recovery.py [--runs 3] [--faults NAME ...] [--results FILE]

The job is examples/trainingjob.yaml with real DeepSpeed ranks on the CPU, GPUs and their driver are pretended. Each run is
a job of its own, on whole nodes. Prints a table for each fault and writes bench/results/recovery.json. Two cores run four
ranks, a control plane and three nodes: figures of one machine.

Columns: the stages that the job's own status tells, and by this machine's clock, from the moment that the fault is done:
`report` until the agent's verdict (of the pod that was hit, by its own report), `cordon` until the node is cordoned, `wall`
until the trainer has written the first new step. Of a hang, `verdict` is until the first agent has found it, of a node that
is switched off until the cluster calls it NotReady, and `wall` counts from there; where a gang goes on without that pod, from
the fault. `lost` are steps that were done again.

Where a pod was made anew: see pod_stages.py. `attempt` is the last one: 1 where the others kept their pods. `pause` is the
longest time between two steps: where a pod is asked to go, the gang may train on for a while.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import pod_stages  # noqa: E402
from recovery_faults import FAULTS, Fault  # noqa: E402
from tests.e2e.jobs import Jobs  # noqa: E402

from oarlock_api.contract.exit_codes import ExitCode  # noqa: E402
from oarlock_local.api import ApiServer  # noqa: E402
from oarlock_local.binaries import HELM  # noqa: E402
from oarlock_local.build import built  # noqa: E402
from oarlock_local.cluster import Cluster, running  # noqa: E402
from oarlock_local.demo.inputs import make_inputs  # noqa: E402
from oarlock_local.demo.install import VALUES, install_operator  # noqa: E402
from oarlock_local.demo.output import make_output  # noqa: E402
from oarlock_local.launch import default_shares  # noqa: E402

STAGES = ("detect", "decide", "drain", "schedule", "start", "firstStep")
OURS = ("report", "cordon", "verdict", *pod_stages.STAGES, "wall", "pause", "lost", "attempt")


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--faults", nargs="*", choices=FAULTS, default=list(FAULTS))
    parser.add_argument("--results", type=Path, default=ROOT / "bench/results/recovery.json")
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
        with _told_in_any_case(options.results, starts, recoveries):
            for run in range(options.runs):  # round by round: a machine that slows down slows all of them
                for name in options.faults:
                    start, recovery = _measure(jobs, api, FAULTS[name], f"{name}-{run}")
                    starts.append(start)
                    recoveries[name].append(recovery)
                    print(f"  {name} {run + 1}/{options.runs}: {recovery['wall']:.1f} s", file=sys.stderr, flush=True)


@contextmanager
def _told_in_any_case(
    results: Path, starts: list[dict[str, float]], recoveries: dict[str, list[dict[str, float]]]
) -> Iterator[None]:
    """Print and write what was measured until the end of the block, however that comes."""
    try:
        with suppress(KeyboardInterrupt):
            yield
    finally:
        _table("kubectl apply -> first step", starts)
        for name, runs in recoveries.items():
            if runs:
                _table(f"{FAULTS[name].words} -> training again", runs)
        results.parent.mkdir(exist_ok=True)
        results.write_text(json.dumps({"starts": starts, "recoveries": recoveries}, indent=1) + "\n")


def _measure(jobs: Jobs, api: ApiServer, fault: Fault, name: str) -> tuple[dict[str, float], dict[str, float]]:
    """Start a job, hit it, wait until it trains again; seconds of both."""
    metrics = jobs.output / name / "metrics.jsonl"
    applied = time.monotonic()
    jobs.apply(name, steps=100_000, every=20, recovery=fault.recovery, **fault.spec)
    _wait_for_step(metrics, attempt=1)
    start = {"wall": time.monotonic() - applied}
    spares = fault.spec.get("spares", 0)
    ready = "a checkpoint, and its spares"
    jobs.wait(name, ready, lambda s: "latestCheckpoint" in s and s["ranks"].get("spares", 0) == spares)
    pod = f"{name}-1-{fault.rank}"
    node = api.get(f"/api/v1/namespaces/default/pods/{pod}")["spec"]["nodeName"]
    with pod_stages.watching(jobs, api, name) as stages:
        hit_at, before = time.time(), metrics.stat().st_size
        fault.do(jobs, pod, node)
        recovery = {what: at - hit_at for what, at in _found(jobs, api, fault, node, name)}
        if fault.in_place:
            _wait_for_start(metrics, before)
        else:
            _wait_for_step(metrics, attempt=2)
        recovery["wall"] = time.time() - hit_at - recovery.get("verdict", 0.0)
    if not fault.in_place:
        report = jobs.output / name / f".oarlock/reports/1-{fault.rank}.json"
        if report.exists():
            recovery["report"] = _epoch(json.loads(report.read_text())["detectedAt"]) - hit_at
        status = jobs.wait(name, "the stages", lambda s: "resumedFromStep" in s["attempts"][-1])
        first, second = (attempt["stageMilliseconds"] for attempt in status["attempts"][:2])
        start, recovery = start | _seconds(first), recovery | _seconds(second)
    if fault.new_pod:
        stages.read_logs(jobs, name)
        recovery |= {stage: at - hit_at for stage, at in stages.at.items()}
        recovery["attempt"] = jobs.status(name)["attempt"]
    recovery["lost"] = _steps_again(metrics)
    recovery["pause"] = _longest_pause(metrics, hit_at)
    if fault.loses_node:
        jobs.cluster.fault("start", node)
        jobs.cluster.kubectl("wait", "--for=condition=Ready", "node", node, "--timeout=120s")
    jobs.delete(name)
    _mend(jobs.cluster, node)
    return start, recovery


def _found(jobs: Jobs, api: ApiServer, fault: Fault, node: str, name: str) -> Iterator[tuple[str, float]]:
    """Wait for what is known of the fault before training goes on; when it was, in seconds since the epoch."""
    if fault.cordons:
        while not api.get(f"/api/v1/nodes/{node}")["spec"].get("unschedulable"):
            time.sleep(0.02)
        yield "cordon", time.time()
    if fault.hangs:
        yield "verdict", _verdict_at(jobs, name)
    if fault.loses_node and not fault.goes_on:
        while _is_ready(api, node):
            time.sleep(0.05)
        yield "verdict", time.time()


def _is_ready(api: ApiServer, node: str) -> bool:
    conditions = api.get(f"/api/v1/nodes/{node}")["status"]["conditions"]
    return any((one["type"], one["status"]) == ("Ready", "True") for one in conditions)


def _steps_again(metrics: Path) -> float:
    """How many steps were done twice."""
    whole = metrics.read_text().rpartition("\n")[0]
    steps = [line["step"] for line in map(json.loads, whole.splitlines()) if "loss" in line]
    return float(len(steps) - len(set(steps)))


def _longest_pause(metrics: Path, since: float) -> float:
    """The longest time between two steps, of those since then and the one before."""
    whole = metrics.read_text().rpartition("\n")[0]
    times = [_epoch(line["time"]) for line in map(json.loads, whole.splitlines()) if "loss" in line]
    return max((later - before for before, later in pairwise(times) if later > since), default=0.0)


def _epoch(said: str) -> float:
    return datetime.fromisoformat(said).timestamp()


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
        logs = (jobs.cluster.kubectl("logs", f"{name}-1-{rank}") for rank in (0, 1))
        lines = [json.loads(line) for log in logs for line in log.splitlines() if f'"code": {ExitCode.HANG}' in line]
        if lines:
            return min(_epoch(line["time"]) for line in lines)
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
