"""The NVSwitch fabric, as its manager reports it for the GPU."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import pynvml

from oarlock_api.contract.health import GpuVerdict
from oarlock_trainer.health.series import Series, Suspicion

if TYPE_CHECKING:
    from oarlock_trainer.health.nvml import Handle

NAME = "fabric"
EVERY = 10.0
_CONFIRM = 2
_COMPLETED = 3


def read(handle: Handle) -> tuple[int, int, int]:
    """(state, status, summary of health). Raises NVMLError, also where the GPU is on no fabric."""
    info = pynvml.c_nvmlGpuFabricInfo_v3_t()
    pynvml.nvmlDeviceGetGpuFabricInfoV(handle, ctypes.byref(info))  # the bare struct would crash the process
    if info.state == pynvml.NVML_GPU_FABRIC_STATE_NOT_SUPPORTED:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
    return info.state, info.status, info.healthSummary


def judge(series: Series) -> Suspicion | None:
    """Unhealthy, or registered with an error, twice in a row: the switches' fault, so the GPU is not taken away."""
    last = series.last(_CONFIRM)
    if len(last) == _CONFIRM and all(_unhealthy(*value) for value in last):
        state, status, summary = series.latest
        words = f"is on an unhealthy NVLink fabric (state {state}, status {status}, health {summary})"
        return Suspicion(verdict=GpuVerdict.HOLD, words=words, value=f"{state}/{status}/{summary}")
    return None


def _unhealthy(state: int, status: int, summary: int) -> bool:
    failed = state == _COMPLETED and status != pynvml.NVML_SUCCESS
    return bool(failed or summary == pynvml.NVML_GPU_FABRIC_HEALTH_SUMMARY_UNHEALTHY)
