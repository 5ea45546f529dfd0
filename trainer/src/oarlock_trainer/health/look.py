"""A look at what a GPU is like, for people and webhooks. In the monitor's process alone: a broken driver may hang in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import pynvml

from oarlock_trainer.health.pace import GpuPace
from oarlock_trainer.health.readings import Readings

if TYPE_CHECKING:
    from collections.abc import Callable

    from oarlock_trainer.health.nvml import Handle

Value = TypeVar("Value")

_REASONS = {
    0x1: "gpu_idle",
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}
"""Bits of NVML's clock event reasons."""


def read(handle: Handle) -> Readings:
    """Ask for all of it; a lost GPU answers nothing. Never raises."""

    def errors(kind: int) -> int | None:
        count = _ask(lambda: pynvml.nvmlDeviceGetTotalEccErrors(handle, kind, pynvml.NVML_VOLATILE_ECC))
        return None if count is None else int(count)

    memory = _ask(lambda: pynvml.nvmlDeviceGetMemoryInfo(handle))
    return Readings(
        temperature_celsius=_ask(lambda: float(pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU))),
        ecc_errors_single=errors(pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED),
        ecc_errors_double=errors(pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED),
        throttle_reasons=_reasons(handle),
        memory_used_percent=100.0 * memory.used / memory.total if memory and memory.total else None,
    )


def pace(index: int, handle: Handle) -> GpuPace:
    """How fast a GPU runs now. Never raises."""
    return GpuPace(
        index=index,
        clock=_ask(lambda: int(pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM))),
        highest_clock=_ask(lambda: int(pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_SM))),
        slowed_by=_reasons(handle),
    )


def _reasons(handle: Handle) -> tuple[str, ...]:
    mask = _ask(lambda: pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle)) or 0
    return tuple(name for bit, name in _REASONS.items() if mask & bit)


def _ask(question: Callable[[], Value]) -> Value | None:
    try:
        return question()
    except pynvml.NVMLError:
        return None
