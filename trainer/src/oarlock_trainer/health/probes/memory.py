"""Errors of a GPU's memories: HBM and SRAM."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import pynvml

from oarlock_api.contract.health import GpuVerdict
from oarlock_trainer.health.series import Probe, Series, Suspicion

if TYPE_CHECKING:
    from oarlock_trainer.health.nvml import Handle

_CONFIRM = 2


def _remapped(series: Series) -> Suspicion | None:
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


ROW_REMAP = Probe(
    name="rowRemap",
    about="Rows of HBM that were replaced by spare ones: pending needs a reset some day, failed means that no spare is left.",
    every=5.0,
    read=pynvml.nvmlDeviceGetRemappedRows,  # (corrected, uncorrected, pending, failed)
    judge=_remapped,
)


def _uncorrectable(handle: Handle) -> int:
    """The volatile count: the lifetime's would compare this run with another one's errors."""
    return int(
        pynvml.nvmlDeviceGetTotalEccErrors(handle, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC)
    )


def _data_lost(series: Series) -> Suspicion | None:
    """One new error is enough: data are lost. It counts at the second reading: a contained one (XID 94) is told by then.

    The event may come after the first reading that has it, and never long after.
    """
    if (new := min(series.last(_CONFIRM)) - series.first.value) > 0:
        words = f"had {new} uncorrectable memory errors since the start"
        return Suspicion(verdict=GpuVerdict.REPLACE_NODE, words=words, value=series.latest)
    return None


ECC = Probe(
    name="ecc",
    about="Uncorrectable memory errors since the driver was loaded.",
    every=5.0,
    read=_uncorrectable,
    judge=_data_lost,
    counts_xids=frozenset({94}),  # contained: the processes that had the memory end, and the GPU goes on
)


def _sram_threshold(handle: Handle) -> bool:
    status = pynvml.c_nvmlEccSramErrorStatus_v1_t()
    pynvml.nvmlDeviceGetSramEccErrorStatus(handle, ctypes.byref(status))  # the bare struct would crash the process
    return bool(status.bThresholdExceeded)


def _sram_exceeded(series: Series) -> Suspicion | None:
    """The threshold is NVIDIA's, and passing it means that the GPU is to be replaced."""
    if series.latest:
        words = "has passed the driver's threshold of SRAM errors: it is to be replaced"
        return Suspicion(verdict=GpuVerdict.REPLACE_NODE, words=words, value="exceeded")
    return None


SRAM = Probe(
    name="sram",
    about="Whether the driver says that a GPU's SRAM has had too many errors. Only root may ask, so mostly it is not "
    "supported.",
    every=60.0,
    read=_sram_threshold,
    judge=_sram_exceeded,
)
