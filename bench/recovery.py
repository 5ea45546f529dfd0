"""Fault -> training again, stage by stage: a rank is killed in a two-node job on local nodes, several times.

    .venv/bin/python bench/recovery.py [--runs 3]

The job is examples/trainingjob.yaml with real DeepSpeed ranks on the CPU. Prints a table and writes
bench/results/recovery.json. Two cores run four ranks, a control plane and three nodes: figures of one machine.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.e2e.jobs import Jobs  # noqa: E402

from oarlock_local.api import ApiServer  # noqa: E402
from oarlock_local.build import helm  # noqa: E402
from oarlock_local.cluster import running  # noqa: E402
from oarlock_local.demo.crash import kill_rank  # noqa: E402
from oarlock_local.demo.inputs import make_inputs  # noqa: E402
from oarlock_local.demo.install import install_operator  # noqa: E402
from oarlock_local.demo.output import make_output  # noqa: E402
from oarlock_local.launch import default_shares  # noqa: E402

STAGES = ("detect", "decide", "drain", "schedule", "start", "firstStep")


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    runs = parser.parse_args().runs
    inputs, shares = make_inputs(), [*default_shares(), ROOT]
    with (
        tempfile.TemporaryDirectory() as folder,
        running("bench", nodes=3, gpus=2, shares=shares, state=Path(folder)) as cluster,
        ApiServer(cluster.kubeconfig) as api,
    ):
        install_operator(cluster, ROOT, helm())
        output = make_output(cluster, ROOT, inputs)
        jobs = Jobs(cluster, output, api)
        starts, recoveries = [], []
        first_walls, walls = [], []
        for run in range(runs):
            name = f"run-{run}"
            applied = time.monotonic()
            jobs.apply(name, steps=100_000, every=20)
            _wait_for_step(output / name / "metrics.jsonl", attempt=1)
            first_walls.append(time.monotonic() - applied)
            jobs.wait(name, "a checkpoint", lambda status: "latestCheckpoint" in status)
            kill_rank(cluster, f"{name}-1-1", 3)
            killed = time.monotonic()
            _wait_for_step(output / name / "metrics.jsonl", attempt=2)
            walls.append(time.monotonic() - killed)
            status = jobs.wait(name, "the stages", lambda s: "resumedFromStep" in s["attempts"][-1])
            first, second = (attempt["stageMilliseconds"] for attempt in status["attempts"][:2])
            starts.append(first)
            recoveries.append(second)
            jobs.cluster.kubectl("delete", "trainingjob", name, "--wait=false")
            jobs.cluster.kubectl("wait", "--for=delete", "pod", "-l", f"oarlock.dev/job={name}", "--timeout=120s")
            time.sleep(2)
    _table("apply -> first step", starts, first_walls)
    _table("rank killed -> first new step", recoveries, walls)
    measured = {"starts": starts, "startSeconds": first_walls, "recoveries": recoveries, "recoverySeconds": walls}
    results = ROOT / "bench/results"
    results.mkdir(exist_ok=True)
    (results / "recovery.json").write_text(json.dumps(measured, indent=1) + "\n")


def _wait_for_step(metrics: Path, *, attempt: int) -> None:
    """Until the trainer has written the first step of an attempt: the end of what is measured, on this machine's clock."""
    mark = f'"attempt":{attempt},'
    while not (metrics.exists() and mark in metrics.read_text()):
        time.sleep(0.02)


def _table(title: str, runs: list[dict[str, int]], walls: list[float]) -> None:
    print(f"\n{title}, seconds (wall: by this machine's clock, from the command to the line that the trainer writes)")
    print("run     " + "".join(f"{stage:>10}" for stage in STAGES) + f"{'sum':>10}{'wall':>10}")
    sums = [sum(run.values()) for run in runs]
    for number, (run, total, wall) in enumerate(zip(runs, sums, walls, strict=True), 1):
        cells = "".join(f"{run.get(stage, 0) / 1000:>10.2f}" for stage in STAGES)
        print(f"{number:<8}{cells}{total / 1000:>10.2f}{wall:>10.2f}")
    medians = "".join(f"{statistics.median(run.get(stage, 0) for run in runs) / 1000:>10.2f}" for stage in STAGES)
    print(f"{'median':<8}{medians}{statistics.median(sums) / 1000:>10.2f}{statistics.median(walls):>10.2f}")


if __name__ == "__main__":
    main()
