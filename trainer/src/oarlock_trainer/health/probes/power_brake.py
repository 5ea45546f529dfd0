"""Time for which something outside (a power supply, the rack) braked the GPU: the building's fault, never the GPU's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pynvml

from oarlock_trainer.health.nvml import field
from oarlock_trainer.health.probes.thermal_slowdown import SHARE, WINDOW_SECONDS, slowed

if TYPE_CHECKING:
    from oarlock_trainer.health.nvml import Handle
    from oarlock_trainer.health.series import Series, Suspicion

NAME = "powerBrake"
EVERY = 5.0


def read(handle: Handle) -> int:
    """Nanoseconds. Raises NVMLError."""
    return field(handle, pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN)


def judge(series: Series) -> Suspicion | None:
    """Half of a whole minute. A rack's nodes show it all at once, so nothing more than Hold may follow from it."""
    return slowed(series, "was braked by its power supply", WINDOW_SECONDS, SHARE)
