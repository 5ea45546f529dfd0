"""What the history costs a step: the same steps under a real agent, with logs kept and without, turn by turn.

    .venv/bin/python bench/history.py [--rounds 7] [--steps 200] [--work 50] [--line 600]

Each rank computes for --work milliseconds of processor time a step and prints a line of --line bytes, as the built-in
trainer's rank 0 does. A round has both, one right after the other, and the next round in the other order; told is the ratio
of their median steps: the median of the rounds, the lowest and the highest. A busy machine hides in it what processor time
shows: what a step costs the rank beyond its work, and the agent. Writes bench/results/history.json.

A step's history costs the same however long the step takes, and one of real training takes ten times as long as --work.
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
from collections.abc import Mapping, Sequence
from pathlib import Path

from process_costs import cpu_seconds

from oarlock_trainer.runtime import channel
from oarlock_trainer.runtime.channel import Event

RESULTS = Path(__file__).parent / "results" / "history.json"
NODE = {"MACHINE_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
BOUNDS: dict[str, dict[str, int]] = {"off": {"logBytes": 0}, "on": {}}


def main() -> None:
    """Run the contenders in turn."""
    options = _options()
    rounds: list[dict[str, dict[str, float]]] = []
    for number in range(options.rounds):
        order = list(BOUNDS) if number % 2 else list(reversed(BOUNDS))
        rounds.append({name: _run(name, options) for name in order})
    print("| history | step, ms | the rank's own, us a step | the agent's, us a step |\n| --- | --- | --- | --- |")
    for name in BOUNDS:
        one = {key: statistics.median(found[name][key] for found in rounds) for key in ("step", "rank", "agent")}
        print(f"| {name} | {one['step'] * 1e3:.3f} | {one['rank'] * 1e6:.1f} | {one['agent'] * 1e6:.1f} |")
    ratios = [found["on"]["step"] / found["off"]["step"] for found in rounds]
    print(f"\nA step with the history takes {_spread(ratios)} times as long as one without.")
    used = [sum(found["on"][key] - found["off"][key] for key in ("rank", "agent")) for found in rounds]
    print(f"Its processor time is {_spread([100 * one / options.work * 1e3 for one in used], 3)} % of the step's work.")
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps({"options": vars(options), "ratios": ratios, "rounds": rounds}, indent=1) + "\n")


def _spread(found: Sequence[float], digits: int = 4) -> str:
    return f"{statistics.median(found):.{digits}f} ({min(found):.{digits}f}-{max(found):.{digits}f})"


def _run(name: str, options: argparse.Namespace) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        told = scratch / "told"
        given = {"steps": options.steps, "work": options.work / 1e3, "line": options.line, "told": str(told)}
        if agent(scratch, "history:rank", given, history=BOUNDS[name]).wait():
            raise SystemExit((scratch / "log").read_text())
        kept = list(scratch.glob("output/.oarlock/history/logs/*/*.gz"))
        if bool(kept) != (name == "on"):
            raise SystemExit(f"history {name} left {kept}")
        found: dict[str, float] = json.loads(told.read_text())
        return found


def agent(
    scratch: Path, program: str, given: Mapping[str, object], *, history: Mapping[str, object], ranks: int = 2
) -> subprocess.Popen[bytes]:
    """An agent of a group of its own whose ranks run `program`, a function of a file here, with `given` in $BENCH."""
    output = scratch / "output"
    output.mkdir()
    job = {
        "version": 2,
        "job": "flux",
        "namespace": "default",
        "job_uid": "uid",
        "attempt": 1,
        "nodes": 1,
        "gpus_per_node": ranks,
        "output_directory": str(output),
        "training": {"method": "Full"},
        "ports": {"rendezvous": 0, "status": 0, "link": 0},
        "preflight": {"storage": False, "clock": False, "gpus": False, "collective": False},
        "history": dict(history),
    }
    (scratch / "job.json").write_text(json.dumps(job))
    environment = {**os.environ, **NODE, "OARLOCK_CONFIG": str(scratch / "job.json"), "BENCH": json.dumps(given)}
    environment |= {"PYTHONPATH": str(Path(__file__).parent), "OARLOCK_SIMULATE_GPUS": str(ranks)}
    files = ("--run-directory", str(scratch / "run"), "--termination-log", str(scratch / "report"))
    command = [sys.executable, "-m", "oarlock_trainer", "agent", *files, "--program", program]
    with (scratch / "log").open("wb") as log:
        return subprocess.Popen(
            [*command, "--warm", "history:rank_imports"],
            env=environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


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
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--work", type=float, default=50.0, help="milliseconds of processor time a step")
    parser.add_argument("--line", type=int, default=600, help="bytes that each rank prints a step")
    return parser.parse_args()


if __name__ == "__main__":
    main()
