"""Measure all that only a machine with GPUs can show, and write the page of figures: bench/results/gpu.md.

    .venv/bin/python bench/gpu_report.py            measure, then write the page
    .venv/bin/python bench/gpu_report.py --page     write it anew from what was measured before

Needs nothing but the machine. What `make gpu-test` left is on the page too. For several machines run bench/gpu_network.py on
each first.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import gpu_page
import torch
from data_report import RESULTS

from oarlock_trainer.engine import numa
from oarlock_trainer.health.fabric import read_fabric
from oarlock_trainer.preflight import nvml

HERE = Path(__file__).parent


def main() -> int:
    """Run the measurements one after the other; one that fails leaves the others their turn."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", action="store_true", help="measure nothing")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("bench/gpu_report.py needs a CUDA GPU, and this machine has none: nothing was measured, no page written.")
        return 0
    codes = [0]
    if not options.page:
        codes = [subprocess.run([sys.executable, HERE / name], check=False).returncode for name in _MEASUREMENTS]
    RESULTS.mkdir(exist_ok=True)
    tests = RESULTS / "gpu-tests.xml"
    written = gpu_page.page(
        machine(),
        step=_json("gpu-step.json"),
        network=_json("gpu-network.json"),
        tests=tests.read_text() if tests.exists() else "",
    )
    (RESULTS / "gpu.md").write_text(written)
    print(RESULTS / "gpu.md")
    return max(codes)


_MEASUREMENTS = ("gpu_step.py", "gpu_network.py")


def machine() -> dict[str, str]:
    """What the figures were measured on."""
    count, fabric = torch.cuda.device_count(), read_fabric()
    with nvml.opened():
        driver, _ = nvml.driver()
    places = [torch.cuda.get_device_properties(number) for number in range(count)]
    addresses = [f"{one.pci_domain_id:04x}:{one.pci_bus_id:02x}:{one.pci_device_id:02x}.0" for one in places]
    allowed = os.sched_getaffinity(0)
    return {
        "GPUs": f"{count} x {torch.cuda.get_device_name()}",
        "driver, CUDA of torch, torch": f"{driver}, {torch.version.cuda}, {torch.__version__}",
        "NCCL": ".".join(map(str, torch.cuda.nccl.version())),
        "cores": f"{len(allowed)}, near each GPU: {[len(numa.near(one, allowed=allowed)) for one in addresses]}",
        "InfiniBand": ", ".join(fabric.devices) or "none",
        "memory that may be locked": "all" if fabric.lockable is None else f"{fabric.lockable >> 10} KiB",
    }


def _json(name: str) -> dict[str, Any] | None:
    path = RESULTS / name
    return json.loads(path.read_text()) if path.exists() else None


if __name__ == "__main__":
    sys.exit(main())
