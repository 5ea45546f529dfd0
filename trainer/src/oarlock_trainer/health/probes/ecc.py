"""Uncorrectable memory errors since the driver was loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pynvml

from oarlock_api.contract.health import GpuVerdict
from oarlock_trainer.health.series import Series, Suspicion

if TYPE_CHECKING:
    from oarlock_trainer.health.nvml import Handle

NAME = "ecc"
EVERY = 5.0
_CONFIRM = 2


def read(handle: Handle) -> int:
    """The volatile count: the lifetime's would compare this run with another one's errors. Raises NVMLError."""
    return int(
        pynvml.nvmlDeviceGetTotalEccErrors(handle, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC)
    )


def judge(series: Series) -> Suspicion | None:
    """One new error is enough: data are lost. It counts at the second reading: a contained one (XID 94) is told by then."""
    if (new := min(series.last(_CONFIRM)) - series.first.value) > 0:
        words = f"had {new} uncorrectable memory errors since the start"
        return Suspicion(verdict=GpuVerdict.REPLACE_NODE, words=words, value=series.latest)
    return None
