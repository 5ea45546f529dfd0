"""Whether the driver says that a GPU's SRAM has had too many errors. Only root may ask, so mostly it is not supported."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import pynvml

from oarlock_api.contract.health import GpuVerdict
from oarlock_trainer.health.series import Series, Suspicion

if TYPE_CHECKING:
    from oarlock_trainer.health.nvml import Handle

NAME = "sram"
EVERY = 60.0


def read(handle: Handle) -> bool:
    """The driver's own flag. Raises NVMLError."""
    status = pynvml.c_nvmlEccSramErrorStatus_v1_t()
    pynvml.nvmlDeviceGetSramEccErrorStatus(handle, ctypes.byref(status))  # the bare struct would crash the process
    return bool(status.bThresholdExceeded)


def judge(series: Series) -> Suspicion | None:
    """The threshold is NVIDIA's, and passing it means that the GPU is to be replaced."""
    if series.latest:
        words = "has passed the driver's threshold of SRAM errors: it is to be replaced"
        return Suspicion(verdict=GpuVerdict.REPLACE_NODE, words=words, value="exceeded")
    return None
