"""Which of the GPUs that NVML shows are this pod's."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pynvml

from oarlock_api.contract.report import Gpu
from oarlock_trainer.health import nvml

if TYPE_CHECKING:
    from collections.abc import Mapping

_GIVEN = "NVIDIA_VISIBLE_DEVICES"
"""Where NVIDIA's device plugin names the GPUs that a container was given."""


class NotOursError(Exception):
    """It can't be told which GPUs are this pod's: a fault of another pod's GPU must not end this one."""


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU of ours, and what NVML knows it by."""

    gpu: Gpu
    handle: nvml.Handle


def find_devices(expected: int, environment: Mapping[str, str] = os.environ) -> list[Device]:
    """GPUs of this pod. One without a handle is not among them: that it is missing is for the check before the start.

    Raises nvml.SilentError, and NotOursError where more are shown than the pod asked for and nobody says which are given.
    """
    with nvml.silence_told():
        count = pynvml.nvmlDeviceGetCount()
    found = [device for index in range(count) if (device := _device(index)) is not None]
    if len(found) <= expected:
        return found
    named = {name.strip() for name in environment.get(_GIVEN, "").split(",")}
    ours = [device for device in found if device.gpu.uuid in named]
    if len(ours) != expected:
        raise NotOursError(f"NVML shows {len(found)} GPUs for {expected}, so it can't be told which are this pod's")
    return ours


def _device(index: int) -> Device | None:
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    except pynvml.NVMLError:
        return None
    return Device(nvml.identity(index, handle), handle)
