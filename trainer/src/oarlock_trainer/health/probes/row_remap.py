"""Rows of HBM that were replaced by spare ones: pending needs a reset some day, failed means that no spare is left."""

from __future__ import annotations

import pynvml

from oarlock_api.contract.health import GpuVerdict
from oarlock_trainer.health.series import Series, Suspicion

NAME = "rowRemap"
EVERY = 5.0

read = pynvml.nvmlDeviceGetRemappedRows
"""(corrected, uncorrected, pending, failed)"""


def judge(series: Series) -> Suspicion | None:
    """A failed remap counts whenever it happened: NVIDIA wants such a GPU replaced. A pending one counts when it is new.

    NVIDIA's notes on memory errors let running and new work go on with a remap pending, so it kills nothing.
    """
    _, uncorrected, pending, failed = series.latest
    if failed:
        words = "has no spare memory rows left (a row remap failed): it is to be replaced"
        return Suspicion(verdict=GpuVerdict.REPLACE_NODE, words=words, value="failed")
    if pending and not series.first.value[2]:
        words = f"remaps a memory row at its next reset ({uncorrected} remapped after uncorrectable errors)"
        return Suspicion(verdict=GpuVerdict.HOLD, words=words, value="pending")
    return None
