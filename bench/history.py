"""What the history costs a step: the same steps under a real agent, with logs kept and without, turn by turn.

    .venv/bin/python bench/history.py [--rounds 5] [--steps 1000] [--work 5] [--line 600]

Each rank computes for --work milliseconds of processor time a step and prints a line of --line bytes, as the built-in
trainer's rank 0 does. Prints a table and writes bench/results/history.json: the median step's seconds, and the processor
time that a step costs the rank beyond its work, and the agent. Both are told because a busy machine hides in the first what
the others show. Medians of the rounds; a step of real training takes 100 times as long, and its history costs the same.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from process_costs import cpu_seconds

from oarlock_trainer.runtime import channel
from oarlock_trainer.runtime.channel import Event

RESULTS = Path(__file__).parent / "results" / "history.json"
NODE = {"MACHINE_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "OARLOCK_SIMULATE_GPUS": "1"}
BOUNDS = {"off": {"logBytes": 0}, "on": {}}


def main() -> None:
    """Run the contenders in turn."""
    options = _options()
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in BOUNDS}
    for _ in range(options.rounds):
        for name in BOUNDS:
            rounds[name].append(_run(name, options))
    figures = {
        name: {key: statistics.median(one[key] for one in found) for key in found[0]} for name, found in rounds.items()
    }
    print("| history | step, ms | the rank's own, us a step | the agent's, us a step |\n| --- | --- | --- | --- |")
    for name, one in figures.items():
        print(f"| {name} | {one['step'] * 1e3:.3f} | {one['rank'] * 1e6:.1f} | {one['agent'] * 1e6:.1f} |")
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps({"options": vars(options), "figures": figures, "rounds": rounds}, indent=1) + "\n")


def _run(name: str, options: argparse.Namespace) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        output = scratch / "output"
        output.mkdir()
        job = {
            "version": 2,
            "job": "flux",
            "namespace": "default",
            "job_uid": "uid",
            "attempt": 1,
            "nodes": 1,
            "gpus_per_node": 2,
            "output_directory": str(output),
            "training": {"method": "Full"},
            "ports": {"rendezvous": 0, "status": 0, "link": 0},
            "preflight": {"storage": False, "clock": False, "gpus": False, "collective": False},
            "history": BOUNDS[name],
        }
        (scratch / "job.json").write_text(json.dumps(job))
        given = {
            "steps": options.steps,
            "work": options.work / 1e3,
            "line": options.line,
            "told": str(scratch / "told"),
        }
        environment = {**os.environ, **NODE, "OARLOCK_CONFIG": str(scratch / "job.json"), "BENCH": json.dumps(given)}
        environment["PYTHONPATH"] = str(Path(__file__).parent)
        files = ("--run-directory", str(scratch / "run"), "--termination-log", str(scratch / "report"))
        command = [sys.executable, "-m", "oarlock_trainer", "agent", *files, "--program", "history:rank"]
        with (scratch / "log").open("wb") as log:
            subprocess.run(
                [*command, "--warm", "history:rank_imports"], env=environment, stdout=log, stderr=log, check=True
            )
        kept = list(output.glob(".oarlock/history/logs/*/*.gz"))
        if bool(kept) != (name == "on"):
            raise SystemExit(f"history {name} left {kept}")
        found: dict[str, float] = json.loads((scratch / "told").read_text())
        return found


def rank_imports() -> None:
    """Nothing that the agent has not."""


def rank() -> int:
    """What each rank does."""
    given = json.loads(os.environ["BENCH"])
    first = os.environ["RANK"] == "0"
    agent = int(Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[1])
    line = "x" * (given["line"] - 1) + "\n"
    steps, before, used = [], cpu_seconds(agent), 0.0
    for number in range(1, given["steps"] + 1):
        began, cpu = time.perf_counter(), time.process_time()
        while time.process_time() - cpu < given["work"]:
            pass
        worked = time.process_time()
        channel.send(Event.STEP, step=number, total=given["steps"], loss=0.5, secondsPerStep=given["work"])
        sys.stdout.write(line)
        sys.stdout.flush()
        used += time.process_time() - worked
        steps.append(time.perf_counter() - began)
    if first:
        cost = {"rank": used / given["steps"], "agent": (cpu_seconds(agent) - before) / given["steps"]}
        Path(given["told"]).write_text(json.dumps({"step": statistics.median(steps), **cost}))
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--work", type=float, default=5.0, help="milliseconds of processor time a step")
    parser.add_argument("--line", type=int, default=600, help="bytes that each rank prints a step")
    return parser.parse_args()


if __name__ == "__main__":
    main()
