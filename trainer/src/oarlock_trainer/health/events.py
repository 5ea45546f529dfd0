"""The driver's events: registered as wanted and had, and understood."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import operator
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pynvml

from oarlock_api.contract.health import GpuVerdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oarlock_trainer.health.devices import Device

XID = pynvml.nvmlEventTypeXidCriticalError

MEANING = {
    pynvml.nvmlEventTypeDoubleBitEccError: (GpuVerdict.REPLACE_NODE, "had a double-bit memory error"),
    pynvml.nvmlEventTypeDramRetirementEvent: (GpuVerdict.HOLD, "is to retire a part of its memory"),
    pynvml.nvmlEventTypeDramRetirementFailure: (GpuVerdict.REPLACE_NODE, "could not retire a part of its memory"),
    pynvml.nvmlEventTypeFatalPoisonError: (GpuVerdict.REPLACE_NODE, "used poisoned data (fatal)"),
    pynvml.nvmlEventTypeNonFatalPoisonError: (GpuVerdict.RESTART_PROCESS, "used poisoned data (not fatal)"),
    pynvml.nvmlEventTypeGpuUnavailableError: (GpuVerdict.REPLACE_NODE, "is not available any more"),
    pynvml.nvmlEventTypeGpuRecoveryAction: (GpuVerdict.IGNORE, ""),  # the action itself is read at once
}
_WANTED = functools.reduce(operator.or_, MEANING, XID)


@dataclass(frozen=True, slots=True, kw_only=True)
class NvmlEvent:
    """One event. `device` is None where it is of a GPU that is not ours, or not known any more."""

    device: Device | None
    verdict: GpuVerdict = GpuVerdict.IGNORE
    words: str = ""
    xid: int | None = None


class Events:
    """A registered set of events; inert where the driver has none to give."""

    def __init__(self, devices: Sequence[Device]) -> None:
        self._devices = devices
        self._set = None
        registered = []
        with contextlib.suppress(pynvml.NVMLError):
            self._set = pynvml.nvmlEventSetCreate()
        for device in devices if self._set is not None else ():
            with contextlib.suppress(pynvml.NVMLError):
                # One bit that the driver lacks would make the call register nothing at all.
                kinds = _WANTED & pynvml.nvmlDeviceGetSupportedEventTypes(device.handle)
                pynvml.nvmlDeviceRegisterEvents(device.handle, kinds, self._set)
                registered.append(kinds)
        self.has_xids = bool(devices) and len(registered) == len(devices) and all(kinds & XID for kinds in registered)
        """Whether all GPUs tell of XIDs."""

    def wait(self, seconds: float) -> NvmlEvent | None:
        """The next event within `seconds`; None also where only the polled readings can tell what happened."""
        if self._set is None:
            time.sleep(seconds)
            return None
        began = time.monotonic()
        try:
            data = pynvml.nvmlEventSetWait_v2(self._set, max(int(seconds * 1000), 1))
        except pynvml.NVMLError as error:
            # A lost GPU makes every wait return at once, and does not say which one it is.
            rest = seconds - (time.monotonic() - began)
            if error.value != pynvml.NVML_ERROR_TIMEOUT and rest > 0:
                time.sleep(rest)
            return None
        device = next((one for one in self._devices if _same(one.handle, data.device)), None)
        if data.eventType & XID:
            return NvmlEvent(device=device, xid=int(data.eventData))
        verdict, words = MEANING.get(data.eventType, (GpuVerdict.IGNORE, ""))
        return NvmlEvent(device=device, verdict=verdict, words=words)


def _same(handle: Any, other: Any) -> bool:
    """Handles are pointers that differ as Python objects."""
    addresses = {ctypes.cast(one, ctypes.c_void_p).value for one in (handle, other)}
    return len(addresses) == 1
