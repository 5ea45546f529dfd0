"""What a command of `oarlock` costs beside kubectl's, turn by turn, against a real API server with jobs in it.

    .venv/bin/python bench/client.py [--rounds 15] [--jobs 20]

Prints a table and writes bench/results/client.json: seconds from start to end, and of processor time; medians, lowest and
highest of the rounds. The API server is on the same machine, so nearly all of it is the program's own start.
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

import yaml

from oarlock_local.cluster import running
from oarlock_local.crd import apply_crd

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "bench/results/client.json"
OARLOCK = str(Path(sys.executable).with_name("oarlock"))


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--jobs", type=int, default=20)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, running("client", nodes=0, state=Path(folder)) as cluster:
        apply_crd(cluster, ROOT / "crds/trainingjobs.yaml")
        job = yaml.safe_load((ROOT / "examples/trainingjob.yaml").read_text())
        job["spec"]["training"]["optimizer"]["learningRate"] = 0.001  # YAML 1.1 reads 1.0e-3 as a string
        cluster.apply([{**job, "metadata": {"name": f"job-{number}"}} for number in range(options.jobs)])
        commands = {
            "oarlock ls": [OARLOCK, "ls"],
            "oarlock get": [OARLOCK, "get", "job-0"],
            "oarlock why": [OARLOCK, "why", "job-0"],
            "oarlock --help": [OARLOCK, "--help"],
            "kubectl get": [str(cluster.kubectl_path), "get", "trainingjobs"],
            "import kubernetes": [sys.executable, "-c", "import kubernetes"],
            "python": [sys.executable, "-c", "pass"],
        }
        environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}
        costs: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
        for turn in range(options.rounds + 1):
            for name, command in commands.items():
                cost = _cost(command, environment)
                if turn:  # the first one reads files and compiles them
                    costs[name].append(cost)
    print("| command | seconds | processor seconds |\n| --- | --- | --- |")
    for name, found in costs.items():
        wall, cpu = (_spread(column) for column in zip(*found, strict=True))
        print(f"| {name} | {wall} | {cpu} |")
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps({"options": vars(options), "rounds": costs}, indent=1) + "\n")


def _cost(command: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """Seconds, and of processor time."""
    began = time.perf_counter()
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    took = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    return took, used.ru_utime + used.ru_stime


def _spread(seconds: tuple[float, ...]) -> str:
    return f"{statistics.median(seconds):.2f} ({min(seconds):.2f}-{max(seconds):.2f})"


if __name__ == "__main__":
    main()
