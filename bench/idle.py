"""What an idle operator costs: memory and CPU of the process beside a real API server, with no job to do.

    .venv/bin/python bench/idle.py [--seconds 60]

Prints a table and writes bench/results/idle.json.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from process_costs import cpu_seconds, resident_mib

from oarlock_local.cluster import running
from oarlock_local.crd import apply_crd

ROOT = Path(__file__).parents[1]


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    seconds = parser.parse_args().seconds
    with tempfile.TemporaryDirectory() as folder, running("idle", nodes=0, state=Path(folder)) as cluster:
        apply_crd(cluster, ROOT / "crds/trainingjobs.yaml")
        command = [sys.executable, "-m", "oarlock_operator", "--kubeconfig", str(cluster.kubeconfig), "--port", "0"]
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        try:
            time.sleep(10)  # start-up is not what is measured
            before = cpu_seconds(process.pid)
            time.sleep(seconds)
            used = cpu_seconds(process.pid) - before
            result = {
                "seconds": seconds,
                "residentMiB": round(resident_mib(process.pid), 1),
                "corePercent": round(100 * used / seconds, 2),
            }
        finally:
            process.terminate()
            process.wait()
    print(f"idle for {seconds:.0f} s: {result['residentMiB']} MiB resident, {result['corePercent']} % of a core")
    results = ROOT / "bench/results"
    results.mkdir(exist_ok=True)
    (results / "idle.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
