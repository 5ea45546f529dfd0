"""PCIe packets that had to be sent again: a bad slot, riser or cable."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pynvml

from oarlock_api.contract.health import GpuVerdict
from oarlock_trainer.health.series import Series, Suspicion

if TYPE_CHECKING:
    from oarlock_trainer.health.nvml import Handle

NAME = "pcieReplays"
EVERY = 10.0
WINDOW_SECONDS = 60.0
TOO_MANY = 600
"""Ten a second for a minute, our own choice: single ones are what the protocol is made for."""


def read(handle: Handle) -> int:
    """Replays since the driver was loaded. Raises NVMLError."""
    return int(pynvml.nvmlDeviceGetPcieReplayCounter(handle))


def judge(series: Series) -> Suspicion | None:
    """The rate within a minute."""
    replays, _ = series.rise(WINDOW_SECONDS)
    if replays >= TOO_MANY:
        words = f"had {replays:.0f} PCIe replays within {WINDOW_SECONDS:.0f} s"
        return Suspicion(verdict=GpuVerdict.HOLD, words=words, value=series.latest)
    return None
