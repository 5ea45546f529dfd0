"""Errors on NVLinks that still work: a worn cable or contact announces itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pynvml

from oarlock_api.contract.health import GpuVerdict
from oarlock_trainer.health.nvml import field, of_links
from oarlock_trainer.health.series import Series, Suspicion

if TYPE_CHECKING:
    from oarlock_trainer.health.nvml import Handle

NAME = "nvlinkErrors"
EVERY = 10.0
WINDOW_SECONDS = 60.0
TOO_MANY = 5
"""Imbue's cluster-health checks warn at as many on one GPU."""


def read(handle: Handle) -> int:
    """CRC errors and replays of all links. Recoveries alone are benign. Raises NVMLError."""
    kinds = (pynvml.NVML_FI_DEV_NVLINK_ERROR_DL_CRC, pynvml.NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY)
    return sum(of_links(lambda link: sum(field(handle, kind, link) for kind in kinds)))


def judge(series: Series) -> Suspicion | None:
    """The rate within a minute; what happened before the job is nobody's concern."""
    errors, _ = series.rise(WINDOW_SECONDS)
    if errors >= TOO_MANY:
        words = f"had {errors:.0f} NVLink errors within {WINDOW_SECONDS:.0f} s"
        return Suspicion(verdict=GpuVerdict.HOLD, words=words, value=series.latest)
    return None
