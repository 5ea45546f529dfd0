"""What a GPU was like when something spoke against it: for people and webhooks, never for a verdict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import pynvml

from oarlock_api.contract.wire import integer, number, text

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Readings:
    """None where it can't be known, or nobody looked. ECC errors since the driver was loaded."""

    temperature_celsius: float | None = None
    ecc_errors_single: int | None = None
    ecc_errors_double: int | None = None
    throttle_reasons: tuple[str, ...] = ()
    memory_used_percent: float | None = None


NO_READINGS = Readings()


def read(handle: Handle) -> Readings:
    """Ask for all of it; a lost GPU answers nothing. Never raises."""

    def ask(question: Callable[[], Value]) -> Value | None:
        try:
            return question()
        except pynvml.NVMLError:
            return None

    def errors(kind: int) -> int | None:
        count = ask(lambda: pynvml.nvmlDeviceGetTotalEccErrors(handle, kind, pynvml.NVML_VOLATILE_ECC))
        return None if count is None else int(count)

    mask = ask(lambda: pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle)) or 0
    memory = ask(lambda: pynvml.nvmlDeviceGetMemoryInfo(handle))
    return Readings(
        temperature_celsius=ask(lambda: float(pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU))),
        ecc_errors_single=errors(pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED),
        ecc_errors_double=errors(pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED),
        throttle_reasons=tuple(name for bit, name in _REASONS.items() if mask & bit),
        memory_used_percent=100.0 * memory.used / memory.total if memory and memory.total else None,
    )


def parse_readings(raw: object) -> Readings:
    """Read them from JSON."""
    known: dict[str, Any] = raw if isinstance(raw, dict) else {}
    reasons = known.get("throttle_reasons")
    return Readings(
        temperature_celsius=number(known.get("temperature_celsius")),
        ecc_errors_single=integer(known.get("ecc_errors_single")),
        ecc_errors_double=integer(known.get("ecc_errors_double")),
        throttle_reasons=tuple(text(one, 64) for one in reasons[:16]) if isinstance(reasons, list) else (),
        memory_used_percent=number(known.get("memory_used_percent")),
    )
