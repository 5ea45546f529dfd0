"""How far the GPU is from the temperature at which its hardware slows down. A margin, not a temperature."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pynvml

from oarlock_api.contract.health import GpuVerdict
from oarlock_trainer.health.nvml import field
from oarlock_trainer.health.series import Series, Suspicion

if TYPE_CHECKING:
    from oarlock_trainer.health.nvml import Handle

NAME = "thermalMargin"
EVERY = 5.0
_CONFIRM = 6


def read(handle: Handle) -> tuple[int, int]:
    """(margin, the margin at which the hardware slows down), in degrees Celsius. Raises NVMLError.

    A driver that does not tell the second is not asked for the first: some H100s then report junk.
    """
    slowdown = field(handle, pynvml.NVML_FI_DEV_TEMPERATURE_SLOWDOWN_TLIMIT)
    return pynvml.nvmlDeviceGetMarginTemperature(handle), slowdown


def judge(series: Series) -> Suspicion | None:
    """At or below the limit for half a minute."""
    last = series.last(_CONFIRM)
    if len(last) == _CONFIRM and all(margin <= slowdown for margin, slowdown in last):
        margin, slowdown = series.latest
        words = f"is too hot: its thermal margin is {margin} °C, it slows down at {slowdown} °C"
        return Suspicion(verdict=GpuVerdict.HOLD, words=words, value=margin)
    return None
