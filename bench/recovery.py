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

from oarlock_local.build import helm  # noqa: E402
from oarlock_local.cluster import running  # noqa: E402
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
    ):
        install_operator(cluster, ROOT, helm())
        output = make_output(cluster, inputs)
        jobs = Jobs(cluster, output)
        starts, recoveries = [], []
        for run in range(runs):
            name = f"run-{run}"
            jobs.apply(name, steps=100_000, every=20)
            jobs.wait(name, "a checkpoint", lambda status: "latestCheckpoint" in status)
            jobs.kill_rank(name, 1, 1, 3)
            status = jobs.wait(name, "training again", lambda s: s.get("attempt") == 2 and s["phase"] == "Running")
            first, second = (attempt["stageMilliseconds"] for attempt in status["attempts"][:2])
            starts.append(first)
            recoveries.append(second)
            jobs.cluster.kubectl("delete", "trainingjob", name, "--wait=false")
            jobs.cluster.kubectl("wait", "--for=delete", "pod", "-l", f"oarlock.dev/job={name}", "--timeout=120s")
            time.sleep(2)
    _table("apply -> first step", starts)
    _table("rank killed -> first new step", recoveries)
    results = ROOT / "bench/results"
    results.mkdir(exist_ok=True)
    (results / "recovery.json").write_text(json.dumps({"starts": starts, "recoveries": recoveries}, indent=1) + "\n")


def _table(title: str, runs: list[dict[str, int]]) -> None:
    print(f"\n{title}, seconds")
    print("run     " + "".join(f"{stage:>10}" for stage in STAGES) + f"{'total':>10}")
    totals = [sum(run.values()) for run in runs]
    for number, (run, total) in enumerate(zip(runs, totals, strict=True), 1):
        print(
            f"{number:<8}"
            + "".join(f"{run.get(stage, 0) / 1000:>10.2f}" for stage in STAGES)
            + f"{total / 1000:>10.2f}"
        )
    medians = "".join(f"{statistics.median(run.get(stage, 0) for run in runs) / 1000:>10.2f}" for stage in STAGES)
    print(f"{'median':<8}{medians}{statistics.median(totals) / 1000:>10.2f}")


if __name__ == "__main__":
    main()
