"""The edge to NVML through nvidia-ml-py: opening it, which GPUs are ours, and what its errors mean.

An error is one of three things, and mixing them up costs a node or a run: it speaks of the GPU's hardware (`broken`), it
says that this driver or container can't tell (UNKNOWN), or it may be anybody's (a container that lost its devices, a
driver that is being replaced). Only the first is ever held against a GPU.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from typing import TYPE_CHECKING, Any, TypeVar

import pynvml

from oarlock_api.contract.report import Gpu

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Value = TypeVar("Value")

LIBRARY = "NVML_LIBRARY"
"""Environment variable: path of a libnvidia-ml.so.1 that lies where the loader does not look."""

_BROKEN = {
    pynvml.NVML_ERROR_GPU_IS_LOST: "is lost: it has fallen off the bus",
    pynvml.NVML_ERROR_RESET_REQUIRED: "must be reset",
    pynvml.NVML_ERROR_IRQ_ISSUE: "gets no interrupts through",
}
UNKNOWN = frozenset(
    {
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_NO_PERMISSION,
        pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
        pynvml.NVML_ERROR_NO_DATA,
        pynvml.NVML_ERROR_NOT_READY,
    }
)
"""Errors that mean that something can't be known here."""

_MEMBERS = {
    pynvml.NVML_VALUE_TYPE_DOUBLE: "dVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_INT: "uiVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG: "ulVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: "ullVal",
    pynvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG: "sllVal",
    pynvml.NVML_VALUE_TYPE_SIGNED_INT: "siVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_SHORT: "usVal",
}
"""Where a field's value lies, by its type: read as another one, -2 degrees are four billion."""

Handle = Any
"""What NVML knows a GPU by; nvidia-ml-py's own types are opaque."""


class NoLibraryError(Exception):
    """This container has no NVML: no NVIDIA GPUs, or a runtime without the `utility` capability."""


class SilentError(Exception):
    """NVML is there and does not answer. The message is NVML's."""


def broken(error: Any) -> str:
    """What an NVMLError says of the GPU's hardware, empty where it says nothing of it."""
    return _BROKEN.get(error.value, "")


def said(error: Any) -> str:
    """NVML's own words, with its number."""
    return f"{error} (code {error.value})"


@contextlib.contextmanager
def opened() -> Iterator[None]:
    """NVML, open. Raises NoLibraryError or SilentError."""
    with silence_told():
        if path := os.environ.get(LIBRARY):
            with contextlib.suppress(OSError):
                ctypes.CDLL(path)  # nvidia-ml-py then gets this one, by its soname
        pynvml.nvmlInit()
    try:
        yield
    finally:
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


@contextlib.contextmanager
def silence_told() -> Iterator[None]:
    """Turn what NVML as a whole answers into NoLibraryError or SilentError."""
    try:
        yield
    except pynvml.NVMLError as error:
        if error.value == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND:
            raise NoLibraryError(str(error)) from error
        raise SilentError(said(error)) from error


def identity(index: int, handle: Handle) -> Gpu:
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


def field(handle: Handle, number: int, scope: int = 0) -> int:
    """One of NVML's numbered fields, signed where the driver says so.

    The call as a whole may succeed and the field may not: its own return counts. Raises NVMLError.
    """
    value = pynvml.nvmlDeviceGetFieldValues(handle, [(number, scope)])[0]
    if value.nvmlReturn != pynvml.NVML_SUCCESS:
        raise pynvml.NVMLError(value.nvmlReturn)
    return int(getattr(value.value, _MEMBERS[value.valueType]))


def of_links(ask: Callable[[int], Value]) -> list[Value]:
    """What each NVLink answers. Raises NVMLError, also where there is none."""
    answers: list[Value] = []
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        try:
            answers.append(ask(link))
        except pynvml.NVMLError as error:
            if link == 0 or error.value not in UNKNOWN | {pynvml.NVML_ERROR_INVALID_ARGUMENT}:
                raise
            break
    return answers


def recovery_action(handle: Handle) -> int:
    """What the driver wants done with the GPU, 0 = nothing; of drivers from R570 on. Raises NVMLError."""
    return field(handle, pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION)


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
