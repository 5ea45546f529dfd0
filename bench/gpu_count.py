"""How many GPUs this machine has, asked without CUDA, which no fork survives."""

from __future__ import annotations


def gpus() -> int:
    """By the driver's NVML, which is closed again: its state is not valid in forked processes. 0 where it does not answer."""
    import pynvml  # noqa: PLC0415 - dry runs on the CPU need none

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return 0
    try:
        return int(pynvml.nvmlDeviceGetCount())
    except pynvml.NVMLError:
        return 0
    finally:
        pynvml.nvmlShutdown()
