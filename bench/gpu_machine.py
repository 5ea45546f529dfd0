"""What a machine with GPUs is, and through which paths its driver is found.

.venv/bin/python bench/gpu_machine.py [--result FILE]
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import gpu_results
from data_report import RESULTS

_LIBRARIES = ("libcuda.so.1", "libnvidia-ml.so.1")
_FOLDERS = ("/usr/local/nvidia/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/local/cuda/compat")


def main() -> int:
    """Ask each question by itself: where one has no answer, its words stand there. 1 where torch finds no GPU."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--result", type=Path, default=RESULTS / "gpu" / "gpu-machine.json")
    options = parser.parse_args()
    facts = {name: _answer(ask) for name, ask in _QUESTIONS.items()}
    gpu_results.write(options.result, facts)
    for name, value in facts.items():
        print(f"{name}: {value}")
    if facts["GPUs"].startswith("none"):
        print("torch finds no GPU")
        return 1
    return 0


def _answer(ask: Callable[[], str]) -> str:
    try:
        return ask()
    except Exception as error:  # noqa: BLE001 - any library's own: it is the answer
        return f"none: {type(error).__name__}: {error}"


def _gpus() -> str:
    import torch  # noqa: PLC0415 - each answer by itself

    torch.cuda.init()
    return f"{torch.cuda.device_count()} x {torch.cuda.get_device_name()}"


def _memory() -> str:
    import torch  # noqa: PLC0415

    free, total = torch.cuda.mem_get_info()
    return f"{total / 1e9:.1f} GB, {free / 1e9:.1f} of them free"


def _torch() -> str:
    import torch  # noqa: PLC0415

    return f"{torch.__version__}, CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}"


def _nccl() -> str:
    import torch  # noqa: PLC0415

    return ".".join(map(str, torch.cuda.nccl.version()))


def _driver() -> str:
    from oarlock_trainer.preflight import nvml  # noqa: PLC0415

    with nvml.opened():
        driver, _ = nvml.driver()
    return driver


def _paths() -> str:
    """Where the loader finds the driver's libraries, and where they lie besides (GKE mounts them in a folder of its own)."""
    known = [line.strip() for line in _cache().splitlines() if line.strip().startswith(_LIBRARIES)]
    searched = [*_FOLDERS, *filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(":"))]
    lying = [f"{folder}/{name}" for folder in searched for name in _LIBRARIES if Path(folder, name).exists()]
    return f"the loader's cache: {known or 'none of them'}; lying in {lying or 'no folder that is known'}"


def _cache() -> str:
    """Of the loader. ldconfig lies in /sbin, which not everybody has in PATH, and musl's machines have none."""
    program = shutil.which("ldconfig", path=f"{os.environ.get('PATH', os.defpath)}:/sbin:/usr/sbin")
    return subprocess.run([program, "-p"], capture_output=True, text=True, check=False).stdout if program else ""


def _cores() -> str:
    import torch  # noqa: PLC0415

    from oarlock_trainer.engine import numa  # noqa: PLC0415

    allowed = os.sched_getaffinity(0)
    places = [torch.cuda.get_device_properties(number) for number in range(torch.cuda.device_count())]
    addresses = [f"{one.pci_domain_id:04x}:{one.pci_bus_id:02x}:{one.pci_device_id:02x}.0" for one in places]
    return f"{len(allowed)}, near each GPU: {[len(numa.near(one, allowed=allowed)) for one in addresses]}"


def _fabric() -> str:
    from oarlock_trainer.health.fabric import read_fabric  # noqa: PLC0415

    fabric = read_fabric()
    lockable = "all" if fabric.lockable is None else f"{fabric.lockable >> 10} KiB"
    return f"{', '.join(fabric.devices) or 'no InfiniBand'}; memory that may be locked: {lockable}"


_QUESTIONS: dict[str, Callable[[], str]] = {
    "GPUs": _gpus,
    "memory of a GPU": _memory,
    "driver": _driver,
    "driver's libraries": _paths,
    "torch": _torch,
    "NCCL": _nccl,
    "cores": _cores,
    "network": _fabric,
    "system": platform.platform,
}

if __name__ == "__main__":
    sys.exit(main())
