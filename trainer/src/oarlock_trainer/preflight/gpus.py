"""Find out whether the pod has the GPUs that it asked for, healthy and idle.

A GPU is named in the finding only where the driver itself speaks against its hardware: lost, or waiting for a reset, a
reboot or a drain. That takes the node from everybody. All else (GPUs that are not there, memory that somebody else
holds, an NVML that gives up) makes this job go elsewhere, and leaves the node to those whom it serves well.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from oarlock_api.contract.exit_codes import ExitCode
from oarlock_api.contract.status import CheckResult
from oarlock_trainer.health.nvml import NoLibraryError, SilentError
from oarlock_trainer.health.probes.recovery_action import ACTIONS, RECOVER_IMEX
from oarlock_trainer.health.symptom import name_of
from oarlock_trainer.preflight import driver, nvml
from oarlock_trainer.preflight.finding import Check, Finding
from oarlock_trainer.preflight.nvml import opened

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from oarlock_api.contract.report import Gpu
    from oarlock_trainer.preflight.nvml import GpuReading

BUSY_BYTES = 1 << 30
"""In use by others: less is what monitoring and a bare CUDA context hold (half a gigabyte), and what training spares."""
_IDLE_SECONDS = 50.0
"""How long memory may stay in use: a killed process's memory is freed within seconds; NVIDIA's own restart tool (NVRx)
waits as long."""
_CONFIRM_SECONDS = 1.0
"""A GPU counts as broken only if it says so twice, this far apart."""


def find(
    *, expected: int, node: str = "", cuda: str = "", patience: float = 0.0, pause: Callable[[float], None] = time.sleep
) -> Finding:
    """The check as preflight orders it. `patience`: seconds that it may wait for GPUs that somebody still uses.

    `cuda`: what the driver must be new enough for, empty = not known.
    """
    where = f" on node {node}" if node else ""
    try:
        with opened() as read:
            version, runs = nvml.driver()
            readings = _confirmed(read, pause)
            waited = 0.0
            while _busy(readings) and not _broken(readings) and waited < min(patience, _IDLE_SECONDS):
                pause(1.0)
                waited += 1.0
                readings = _confirmed(read, pause)
    except NoLibraryError as error:
        why = f"GPUs: this container has no NVML ({error}), so their health can't be checked"
        return Finding(check=Check.GPUS, result=CheckResult.NOT_SUPPORTED, detail=why)
    except SilentError as error:
        return _unfit(
            f"GPUs: NVML does not answer{where}: {error}. If nvidia-smi works on the node, the container had lost its "
            "devices (a restart of systemd or containerd does that); if not, its driver needs care"
        )
    found = judge(readings, expected=expected, where=where)
    if not found.code and (words := driver.too_old(version, cuda, runs=runs)):
        return _unfit(f"GPUs{where}: {words}")
    return found


def _confirmed(read: Callable[[], list[GpuReading]], pause: Callable[[float], None]) -> list[GpuReading]:
    """Readings in which no GPU is broken for a moment only. One that was broken and then is gone still counts."""
    before = read()
    if not _broken(before):
        return before
    pause(_CONFIRM_SECONDS)
    after = read()
    there = {reading.gpu.index for reading in after}
    return [*after, *(reading for reading in _broken(before) if reading.gpu.index not in there)]


def judge(readings: Sequence[GpuReading], *, expected: int, where: str) -> Finding:
    """What the readings of all GPUs say. Pure."""
    if len(readings) > expected or any(reading.partitioned for reading in readings):
        seen = "partitioned GPUs (MIG)" if len(readings) <= expected else f"{len(readings)} GPUs for {expected}"
        why = f"GPUs: NVML shows {seen}{where}, so it can't be told which are this pod's"
        return Finding(check=Check.GPUS, result=CheckResult.NOT_SUPPORTED, detail=why)
    return _broken_or_silent(readings, where) or _missing_or_busy(readings, expected, where) or _usable(readings, where)


def _broken_or_silent(readings: Sequence[GpuReading], where: str) -> Finding | None:
    if blamed := [(reading.gpu, words) for reading in readings if (words := _against(reading))]:
        gpu = blamed[0][0]
        said = "; ".join(f"{name_of(one)} {words}" for one, words in blamed)
        return _unfit(f"GPUs: {said}{where}. Reset it or reboot the node; if it comes back, have it repaired", gpu)
    if silent := [reading for reading in readings if reading.silent]:
        said = "; ".join(f"{name_of(reading.gpu)}: {reading.silent}" for reading in silent)
        return _unfit(f"GPUs: NVML has no answer{where} about {said}. Look at nvidia-smi on the node")
    return None


def _missing_or_busy(readings: Sequence[GpuReading], expected: int, where: str) -> Finding | None:
    if len(readings) < expected:
        seen = ", ".join(reading.gpu.uuid or str(reading.gpu.index) for reading in readings) or "none"
        return _unfit(
            f"GPUs: {len(readings)} of {expected} are there{where} ({seen}): one has been lost, or the device plugin "
            "gave fewer. Look at nvidia-smi on the node, and at spec.gpusPerNode and spec.pod.gpuResource"
        )
    if imex := [reading.gpu for reading in readings if reading.action == RECOVER_IMEX]:
        return _unfit(f"GPUs: the driver wants the IMEX domain of {name_of(imex[0])}{where} to be recovered")
    if busy := _busy(readings):
        said = ", ".join(f"{(reading.used or 0) / 2**30:.1f} GiB of {name_of(reading.gpu)}" for reading in busy)
        return _unfit(
            f"GPUs: somebody else uses {said}{where}, at most {BUSY_BYTES / 2**30:g} GiB is allowed. "
            "Look for left-over processes with nvidia-smi on the node; for GPUs that are shared on purpose, set "
            "spec.preflight.gpus: false"
        )
    return None


def _usable(readings: Sequence[GpuReading], where: str) -> Finding:
    unknown = sorted({name for reading in readings for name in reading.unknown})
    said = f"GPUs: {len(readings)} are there{where}" + (f"; not known here: {', '.join(unknown)}" if unknown else "")
    odd = [f"{name_of(one.gpu)} asks for action {one.action}, which is new to us" for one in readings if one.action]
    odd += [f"{one.processes} compute processes on {name_of(one.gpu)}" for one in readings if one.processes]
    if odd:
        return Finding(check=Check.GPUS, result=CheckResult.WARNING, detail=f"{said}; {'; '.join(odd)}")
    return Finding(check=Check.GPUS, result=CheckResult.PASSED, detail=f"{said}, healthy and idle")


def _against(reading: GpuReading) -> str:
    if reading.broken:
        return reading.broken
    wanted = ACTIONS.get(reading.action or 0)
    return f"must {wanted}, says the driver (recovery action {reading.action})" if wanted else ""


def _broken(readings: Sequence[GpuReading]) -> list[GpuReading]:
    return [reading for reading in readings if reading.broken]


def _busy(readings: Sequence[GpuReading]) -> list[GpuReading]:
    return [reading for reading in readings if (reading.used or 0) > BUSY_BYTES]


def _unfit(detail: str, gpu: Gpu | None = None) -> Finding:
    return Finding(check=Check.GPUS, result=CheckResult.FAILED, detail=f"{detail}.", code=ExitCode.PREFLIGHT, gpu=gpu)
