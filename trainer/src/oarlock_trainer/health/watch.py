"""The state of one node's probes: series of readings, losses that wait to be confirmed, and what was told already.

No NVML and no clock in here: the monitor reads and tells the time, this decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from oarlock_api.contract.health import GpuVerdict
from oarlock_trainer.health import xids
from oarlock_trainer.health.series import Reading, Series
from oarlock_trainer.health.symptom import Symptom

if TYPE_CHECKING:
    from collections.abc import Callable

    from oarlock_api.contract.report import Gpu
    from oarlock_trainer.health.series import Probe

CONFIRM_SECONDS = 1.0
"""A GPU is lost only if it says so twice, this far apart."""


@dataclass(frozen=True, slots=True)
class _Loss:
    since: float
    words: str


class GpuWatch:
    """What is known of the GPUs. `stamp` gives the present as RFC 3339."""

    def __init__(self, stamp: Callable[[], str]) -> None:
        self._stamp = stamp
        self._series: dict[tuple[str, int], Series] = {}
        self._probes: dict[str, Probe] = {}
        """Those that were read."""
        self._losses: dict[int, _Loss] = {}
        self._told: set[tuple[int, str, GpuVerdict]] = set()

    def doubts(self, gpu: Gpu) -> bool:
        """Whether the GPU said that it is lost, and nothing else since: it is to be asked again soon."""
        return gpu.index in self._losses

    def take(self, probe: Probe, gpu: Gpu, value: Any, now: float) -> Symptom | None:
        """One reading; the symptom that it completes, once."""
        self._losses.pop(gpu.index, None)
        self._probes[probe.name] = probe
        reading = Reading(now, value)
        series = self._series.setdefault((probe.name, gpu.index), Series(reading))
        series.readings.append(reading)
        found = probe.judge(series)
        if found is None:
            return None
        return self._once(gpu, probe.name, found.verdict, found.words, found.value)

    def lost(self, gpu: Gpu, words: str, now: float) -> Symptom | None:
        """NVML said that the GPU's hardware is broken: the second time it is believed."""
        loss = self._losses.setdefault(gpu.index, _Loss(now, words))
        if now - loss.since < CONFIRM_SECONDS:
            return None
        return self._once(gpu, "lost", GpuVerdict.REPLACE_NODE, loss.words, loss.words)

    def xid(self, gpu: Gpu, number: int, action: int | None) -> Symptom | None:
        """The driver told of an XID; `action` is its recovery action right after, None where it tells none."""
        for probe in self._probes.values():
            if number in probe.counts_xids:
                self._series.pop((probe.name, gpu.index), None)
        verdict, words = xids.verdict_of(number, action=action)
        if verdict is GpuVerdict.IGNORE:
            return None
        return Symptom(probe="xid", verdict=verdict, words=words, value=number, at=self._stamp(), gpu=gpu, xid=number)

    def told(self, gpu: Gpu, probe: str, verdict: GpuVerdict, words: str) -> Symptom | None:
        """An event of another kind, once."""
        return self._once(gpu, probe, verdict, words, words)

    def _once(self, gpu: Gpu, probe: str, verdict: GpuVerdict, words: str, value: float | str) -> Symptom | None:
        key = (gpu.index, probe, verdict)
        if key in self._told:
            return None
        self._told.add(key)
        return Symptom(probe=probe, verdict=verdict, words=words, value=value, at=self._stamp(), gpu=gpu)
