"""What makes a GPU slow, and with it the whole gang: heat, and a brake from outside.

NVML counts the nanoseconds of a slowdown, so that none between two readings is missed, and one sample means nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pynvml

from oarlock_api.contract.health import GpuVerdict
from oarlock_trainer.health.nvml import UNKNOWN, field
from oarlock_trainer.health.series import Probe, Series, Suspicion

if TYPE_CHECKING:
    from oarlock_trainer.health.nvml import Handle

_WINDOW_SECONDS = 60.0
_SHARE = 0.5
"""Of the window: our own choice, more than a burst and less than a day. The power cap is not counted: it is normal."""
_CONFIRM = 6


def _slowed_for_heat(handle: Handle) -> int:
    """Nanoseconds of both kinds, the hardware's and the software's (which also guards the HBM)."""
    hardware = field(handle, pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN)
    try:
        return hardware + field(handle, pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN)
    except pynvml.NVMLError as error:
        if error.value not in UNKNOWN:
            raise
        return hardware


def _slowed(series: Series, words: str) -> Suspicion | None:
    """Hold where a counter of nanoseconds grew for more than half of a whole minute.

    A rack's nodes show a brake all at once, so nothing more than Hold may follow from it.
    """
    nanoseconds, seconds = series.rise(_WINDOW_SECONDS)
    if seconds < _WINDOW_SECONDS * 0.9 or nanoseconds < _SHARE * seconds * 1e9:
        return None
    told = f"{words} for {nanoseconds / 1e9:.0f} of the last {seconds:.0f} s"
    return Suspicion(verdict=GpuVerdict.HOLD, words=told, value=series.latest)


THERMAL_SLOWDOWN = Probe(
    name="thermalSlowdown",
    about="Time for which the hardware cut the clocks for heat: a GPU like that makes the whole gang slow.",
    every=5.0,
    read=_slowed_for_heat,
    judge=lambda series: _slowed(series, "was slowed down for heat"),
)

POWER_BRAKE = Probe(
    name="powerBrake",
    about="Time for which something outside (a power supply, the rack) braked the GPU: the building's fault, never the "
    "GPU's.",
    every=5.0,
    read=lambda handle: field(handle, pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN),
    judge=lambda series: _slowed(series, "was braked by its power supply"),
)


def _margins(handle: Handle) -> tuple[int, int]:
    """(margin, the margin at which the hardware slows down), in degrees Celsius.

    A driver that does not tell the second is not asked for the first: some H100s then report junk.
    """
    slowdown = field(handle, pynvml.NVML_FI_DEV_TEMPERATURE_SLOWDOWN_TLIMIT)
    return pynvml.nvmlDeviceGetMarginTemperature(handle), slowdown


def _too_hot(series: Series) -> Suspicion | None:
    """At or below the limit for half a minute."""
    last = series.last(_CONFIRM)
    if len(last) == _CONFIRM and all(margin <= slowdown for margin, slowdown in last):
        margin, slowdown = series.latest
        words = f"is too hot: its thermal margin is {margin} °C, it slows down at {slowdown} °C"
        return Suspicion(verdict=GpuVerdict.HOLD, words=words, value=margin)
    return None


THERMAL_MARGIN = Probe(
    name="thermalMargin",
    about="How far the GPU is from the temperature at which its hardware slows down. A margin, not a temperature.",
    every=5.0,
    read=_margins,
    judge=_too_hot,
)
