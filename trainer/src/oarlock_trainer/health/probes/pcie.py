"""The width of the PCIe link. Its generation falls when a GPU idles, so that tells nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pynvml

from oarlock_api.contract.health import GpuVerdict
from oarlock_trainer.health.series import Series, Suspicion

if TYPE_CHECKING:
    from oarlock_trainer.health.nvml import Handle

NAME = "pcieWidth"
EVERY = 60.0
_CONFIRM = 2


def read(handle: Handle) -> int:
    """Lanes. Raises NVMLError."""
    return int(pynvml.nvmlDeviceGetCurrPcieLinkWidth(handle))


def judge(series: Series) -> Suspicion | None:
    """Narrower than at the start, twice in a row: a slot or a VM may never have had all lanes, and that is its own."""
    last = series.last(_CONFIRM)
    if len(last) == _CONFIRM and all(width < series.first.value for width in last):
        words = f"has {series.latest} PCIe lanes left of {series.first.value}"
        return Suspicion(verdict=GpuVerdict.HOLD, words=words, value=series.latest)
    return None
