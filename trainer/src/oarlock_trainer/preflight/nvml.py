"""What the NVIDIA driver says of this pod's GPUs, read through nvidia-ml-py. Judging is gpus.py's.

Runs in a process of its own: NVML can block in the driver for minutes, and crash. Every probe that a driver lacks, or
does not let us see, is unknown and told as such: never a fault, and never silently healthy. Nothing is changed.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import pynvml

from oarlock_api.contract.report import Gpu
from oarlock_trainer.health import nvml

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReading:
    """One GPU. None = cannot be known here; `unknown` names those probes.

    `broken` is what an error says of its hardware, `silent` an error that may be anybody's; both are empty for a GPU
    that answers. `action` is the driver's recovery action (0 = none), `used` bytes of its memory without the driver's
    own share, `processes` the number of compute processes.
    """

    gpu: Gpu
    broken: str = ""
    silent: str = ""
    partitioned: bool = False
    action: int | None = None
    used: int | None = None
    processes: int | None = None
    unknown: tuple[str, ...] = ()


@contextlib.contextmanager
def opened() -> Iterator[Callable[[], list[GpuReading]]]:
    """Open NVML and yield what reads all GPUs anew. Raises NoLibraryError or SilentError, also while reading."""
    with nvml.opened():
        yield _read


def driver() -> tuple[str, int | None]:
    """The driver's version, and the CUDA that its library runs (13000 = 13.0); empty and None where NVML can't tell."""
    version, runs = "", None
    with contextlib.suppress(pynvml.NVMLError, UnicodeDecodeError):
        version = str(pynvml.nvmlSystemGetDriverVersion())
    with contextlib.suppress(pynvml.NVMLError):
        runs = int(pynvml.nvmlSystemGetCudaDriverVersion())
    return version, runs


def _read() -> list[GpuReading]:
    with nvml.silence_told():
        count = pynvml.nvmlDeviceGetCount()
    return [reading for index in range(count) if (reading := _read_gpu(index)) is not None]


def _read_gpu(index: int) -> GpuReading | None:
    """One GPU, None where it is another container's."""
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    except pynvml.NVMLError as error:
        if error.value == pynvml.NVML_ERROR_NO_PERMISSION:
            return None
        return _failed(Gpu(index=index), error)
    gpu = nvml.identity(index, handle)
    unknown: list[str] = []

    def ask(name: str, probe: Callable[[], Value]) -> Value | None:
        try:
            return probe()
        except pynvml.NVMLError as error:
            if error.value not in nvml.UNKNOWN:
                raise
            unknown.append(name)
            return None

    try:
        mig = ask("MIG", lambda: pynvml.nvmlDeviceGetMigMode(handle)[0])
        action = ask("recovery action", lambda: nvml.recovery_action(handle))
        used = ask("memory", lambda: _memory_used(handle))
        processes = ask("processes", lambda: len(pynvml.nvmlDeviceGetComputeRunningProcesses(handle)))
    except pynvml.NVMLError as error:
        return _failed(gpu, error)
    return GpuReading(
        gpu=gpu,
        partitioned=mig == pynvml.NVML_DEVICE_MIG_ENABLE,
        action=action,
        used=used,
        processes=processes,
        unknown=tuple(name for name in unknown if name != "MIG"),  # what can't be partitioned is whole
    )


def _failed(gpu: Gpu, error: Any) -> GpuReading:
    if words := nvml.broken(error):
        return GpuReading(gpu=gpu, broken=f"{words}. NVML: {nvml.said(error)}")
    return GpuReading(gpu=gpu, silent=nvml.said(error))


def _memory_used(handle: Any) -> int:
    """Bytes in use. The first form of the call counts the driver's own half gigabyte as used, the second does not."""
    try:
        return int(pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2).used)
    except pynvml.NVMLError as error:
        if error.value not in nvml.UNKNOWN:
            raise
    return int(pynvml.nvmlDeviceGetMemoryInfo(handle).used)
