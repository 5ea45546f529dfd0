"""Compiled code of a job, kept in its output, because what a pod has on its own disk is gone with the pod.

torch's compiler looks for its results in a folder of the pod. After a warm-up that compiled something the ranks of the first
node write what it used into a file of the output, each its own: a result is for one GPU by its number, as the compiler sees
it. Before its own warm-up each rank of a later pod puts the file of its GPU's number into its folder. A file is for one
version of torch on one kind of hardware; torch itself looks whether an entry is for the code at hand. This saves time and
nothing else hangs on it: what cannot be read or written is told, and compiled once more. It is code, so it is taken from the
job's own output alone.
"""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

import torch

from oarlock_api.contract.layout import PRIVATE
from oarlock_trainer.runtime import channel
from oarlock_trainer.runtime.atomic_write import write_bytes

if TYPE_CHECKING:
    from pathlib import Path


def kind() -> str:
    """What compiled code depends on, as a name for a file: torch's version and the hardware."""
    hardware = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.machine()
    return f"torch-{torch.__version__}-{hardware}".replace(" ", "-").replace("/", "-")


def bring(output: Path, device: torch.device) -> None:
    """Put what is kept for a device into torch's folder, which the environment names already."""
    file = _file(output, device)
    try:
        torch.compiler.load_cache_artifacts(file.read_bytes())
    except FileNotFoundError:
        return
    except Exception as error:  # noqa: BLE001 - one kind of entry asserts that torch's settings are those that it was made with
        channel.tell(f"compiled code could not be taken from {file}, and is compiled once more: {error}")


def keep(output: Path, device: torch.device) -> None:
    """Keep for a device what this process compiled, with what it took from torch's folder; nothing where all was there."""
    from torch._dynamo.utils import counters  # noqa: PLC0415 - who compiles has it imported

    if not counters["aot_autograd"]["autograd_cache_miss"] + counters["inductor"]["fxgraph_cache_miss"]:
        return
    file, used = _file(output, device), torch.compiler.save_cache_artifacts()
    if used is None:
        return
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(file, used[0])
    except OSError as error:
        channel.tell(f"compiled code could not be kept in {file}, the next attempt compiles once more: {error}")


def _file(output: Path, device: torch.device) -> Path:
    return output / PRIVATE / "compiled" / f"{kind()}-{str(device).replace(':', '-')}"
