"""Which of the GPUs that NVML shows are this pod's."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """This pod's GPUs, as NVML shows them now.

    `broken`: (GPU, known by its index alone; words) of each whose hardware is so broken that there is no handle for it.
    `missing` says that others are not there, which may be anybody's fault; empty where all are accounted for.
    """

    devices: tuple[Device, ...]
    broken: tuple[tuple[Gpu, str], ...] = ()
    missing: str = ""

    @property
    def indices(self) -> frozenset[int]:
        """Of those that can be asked."""
        return frozenset(device.gpu.index for device in self.devices)


def find_devices(expected: int, environment: Mapping[str, str] = os.environ) -> Found:
    """GPUs of this pod.

    Raises nvml.SilentError, and NotOursError where more are shown than the pod asked for and nobody says which are given.
    """
    with nvml.silence_told():
        count = pynvml.nvmlDeviceGetCount()
    seen = [(index, _ask_for(index)) for index in range(count)]
    devices = [device for _, device in seen if isinstance(device, Device)]
    if len(devices) > expected:
        return Found(devices=tuple(_given(devices, expected, environment)))
    errors = [
        (Gpu(index=index), error)
        for index, error in seen
        if not isinstance(error, Device) and error.value != pynvml.NVML_ERROR_NO_PERMISSION  # another container's
    ]
    broken = [(gpu, words) for gpu, error in errors if (words := nvml.broken(error))]
    if len(devices) + len(errors) > expected:
        broken = []  # some are others', and without a handle they have no name
    there = len(devices) + len(broken)
    said = "".join(f"; GPU {gpu.index}: {nvml.said(error)}" for gpu, error in errors if not nvml.broken(error))
    missing = f"NVML shows {there} GPUs of {expected}{said}" if there < expected else ""
    return Found(devices=tuple(devices), broken=tuple(broken), missing=missing)


def _given(devices: list[Device], expected: int, environment: Mapping[str, str]) -> list[Device]:
    named = {name.strip() for name in environment.get(_GIVEN, "").split(",")}
    ours = [device for device in devices if device.gpu.uuid in named]
    if len(ours) != expected:
        raise NotOursError(f"NVML shows {len(devices)} GPUs for {expected}, so it can't be told which are this pod's")
    return ours


def _ask_for(index: int) -> Any:
    """A Device, or the NVMLError that there is in its place."""
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    except pynvml.NVMLError as error:
        return error
    return Device(nvml.identity(index, handle), handle)
