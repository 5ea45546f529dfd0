"""A rank works on its own GPU and on no other, in all of its threads.

A thread begins on GPU 0, whatever the others have chosen. One that leaves a stream, or asks for the current device, goes back
there, and that makes a CUDA context on GPU 0: half a gigabyte of its memory for each rank of the node.
"""

from __future__ import annotations

import torch


def choose(device: torch.device) -> None:
    """To be called first in each thread that may touch the GPU. On the CPU there is nothing to choose."""
    if device.type == "cuda":
        torch.cuda.set_device(device)


def others(device: torch.device) -> list[int]:
    """GPUs beside its own that this process holds memory of. Makes no context itself."""
    if device.type != "cuda":
        return []
    found = range(torch.cuda.device_count())
    return [gpu for gpu in found if gpu != device.index and torch._C._cuda_hasPrimaryContext(gpu)]  # type: ignore[attr-defined]  # noqa: SLF001
