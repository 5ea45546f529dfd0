"""Time for which the hardware cut the clocks for heat: a GPU like that makes the whole gang slow.

NVML counts nanoseconds, so that no slowdown between two readings is missed, and one sample means nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pynvml

from oarlock_api.contract.health import GpuVerdict
from oarlock_trainer.health.nvml import UNKNOWN, field
from oarlock_trainer.health.series import Series, Suspicion

if TYPE_CHECKING:
    from oarlock_trainer.health.nvml import Handle

NAME = "thermalSlowdown"
EVERY = 5.0
WINDOW_SECONDS = 60.0
SHARE = 0.5
"""Of the window: our own choice, more than a burst and less than a day. The power cap is not counted: it is normal."""


def read(handle: Handle) -> int:
    """Nanoseconds of both kinds, the hardware's and the software's (which also guards the HBM). Raises NVMLError."""
    hardware = field(handle, pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN)
    try:
        return hardware + field(handle, pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN)
    except pynvml.NVMLError as error:
        if error.value not in UNKNOWN:
            raise
        return hardware


def judge(series: Series) -> Suspicion | None:
    """Half of a whole minute."""
    return slowed(series, "was slowed down for heat", WINDOW_SECONDS, SHARE)


def slowed(series: Series, words: str, window: float, share: float) -> Suspicion | None:
    """Hold where a counter of nanoseconds grew for more than `share` of a whole `window` of seconds."""
    nanoseconds, seconds = series.rise(window)
    if seconds < window * 0.9 or nanoseconds < share * seconds * 1e9:
        return None
    told = f"{words} for {nanoseconds / 1e9:.0f} of the last {seconds:.0f} s"
    return Suspicion(verdict=GpuVerdict.HOLD, words=told, value=series.latest)
