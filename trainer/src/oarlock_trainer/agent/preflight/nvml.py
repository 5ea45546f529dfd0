"""What the NVIDIA driver says of this pod's GPUs, read through nvidia-ml-py. Judging is gpus.py's.

Runs in a process of its own: NVML can block in the driver for minutes, and crash. Every probe that a driver lacks, or
does not let us see, is unknown and told as such: never a fault, and never silently healthy. Nothing is changed.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import pynvml

from oarlock_api.contract.report import Gpu

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LIBRARY = "NVML_LIBRARY"
"""Environment variable: path of a libnvidia-ml.so.1 that lies where the loader does not look."""

Value = TypeVar("Value")

_BROKEN = {
    pynvml.NVML_ERROR_GPU_IS_LOST: "is lost: it has fallen off the bus",
    pynvml.NVML_ERROR_RESET_REQUIRED: "must be reset",
    pynvml.NVML_ERROR_IRQ_ISSUE: "gets no interrupts through",
}
"""Errors that speak of the GPU's hardware. All others can be the container's or the driver's own."""
_UNKNOWN = frozenset(
    {
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_NO_PERMISSION,
        pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
        pynvml.NVML_ERROR_NO_DATA,
        pynvml.NVML_ERROR_NOT_READY,
    }
)
"""Errors that mean that this probe can't be had here."""


class NoLibraryError(Exception):
    """This container has no NVML: no NVIDIA GPUs, or a runtime without the `utility` capability."""


class SilentError(Exception):
    """NVML is there and does not answer. The message is NVML's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
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
def opened() -> Iterator[Callable[[], list[Reading]]]:
    """Open NVML and yield what reads all GPUs anew. Raises NoLibraryError or SilentError, also while reading."""
    with _silence_told():
        if path := os.environ.get(LIBRARY):
            with contextlib.suppress(OSError):
                ctypes.CDLL(path)  # nvidia-ml-py then gets this one, by its soname
        pynvml.nvmlInit()
    try:
        yield _read
    finally:
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def _read() -> list[Reading]:
    with _silence_told():
        count = pynvml.nvmlDeviceGetCount()
    return [reading for index in range(count) if (reading := _read_gpu(index)) is not None]


@contextlib.contextmanager
def _silence_told() -> Iterator[None]:
    try:
        yield
    except pynvml.NVMLError as error:
        if error.value == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND:
            raise NoLibraryError(str(error)) from error
        raise SilentError(f"{error} (code {error.value})") from error


def _read_gpu(index: int) -> Reading | None:
    """One GPU, None where it is another container's."""
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    except pynvml.NVMLError as error:
        if error.value == pynvml.NVML_ERROR_NO_PERMISSION:
            return None
        return _failed(Gpu(index=index), error)
    gpu = _identity(index, handle)
    unknown: list[str] = []

    def ask(name: str, probe: Callable[[], Value]) -> Value | None:
        try:
            return probe()
        except pynvml.NVMLError as error:
            if error.value not in _UNKNOWN:
                raise
            unknown.append(name)
            return None

    try:
        mig = ask("MIG", lambda: pynvml.nvmlDeviceGetMigMode(handle)[0])
        action = ask("recovery action", lambda: _recovery_action(handle))
        used = ask("memory", lambda: _memory_used(handle))
        processes = ask("processes", lambda: len(pynvml.nvmlDeviceGetComputeRunningProcesses(handle)))
    except pynvml.NVMLError as error:
        return _failed(gpu, error)
    return Reading(
        gpu=gpu,
        partitioned=mig == pynvml.NVML_DEVICE_MIG_ENABLE,
        action=action,
        used=used,
        processes=processes,
        unknown=tuple(name for name in unknown if name != "MIG"),  # what can't be partitioned is whole
    )


def _failed(gpu: Gpu, error: Any) -> Reading:
    said = f"{error} (code {error.value})"
    if broken := _BROKEN.get(error.value):
        return Reading(gpu=gpu, broken=f"{broken}. NVML: {said}")
    return Reading(gpu=gpu, silent=said)


def _identity(index: int, handle: Any) -> Gpu:
    """By all names that it still gives: a lost GPU may know some of them."""

    def name(read: Callable[[Any], str]) -> str:
        try:
            return read(handle)
        except (pynvml.NVMLError, UnicodeDecodeError):
            return ""

    return Gpu(
        index=index,
        uuid=name(pynvml.nvmlDeviceGetUUID),
        serial=name(pynvml.nvmlDeviceGetSerial),
        pci_bus_id=name(lambda handle: _text(pynvml.nvmlDeviceGetPciInfo(handle).busId)),
        name=name(pynvml.nvmlDeviceGetName),
    )


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _recovery_action(handle: Any) -> int:
    """NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, of drivers from R570 on. The value counts only if its own return is 0."""
    value = pynvml.nvmlDeviceGetFieldValues(handle, [pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION])[0]
    if value.nvmlReturn != pynvml.NVML_SUCCESS:
        raise pynvml.NVMLError(value.nvmlReturn)
    return int(value.value.uiVal if value.valueType == pynvml.NVML_VALUE_TYPE_UNSIGNED_INT else value.value.ullVal)


def _memory_used(handle: Any) -> int:
    """Bytes in use. The first form of the call counts the driver's own half gigabyte as used, the second does not."""
    try:
        return int(pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2).used)
    except pynvml.NVMLError as error:
        if error.value not in _UNKNOWN:
            raise
    return int(pynvml.nvmlDeviceGetMemoryInfo(handle).used)
