"""The health monitor: one process for a node's GPUs, which may hang or crash in the driver without harm to anybody else.

    python -m oarlock_trainer.health.monitor --told FD --parent PID --expected N

It registers for all events that it wants and the driver has, takes a first reading of every probe right after, and then
waits for events between the rounds of readings. What was before is told only where it makes a GPU unfit whenever it
happened (see series.py). A round in which a GPU has no answer is told as such: nobody claims health that he can't see. One
long-lived connection to NVML: opening it beside a failing GPU may take seconds. Nothing is changed on any GPU.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pynvml

from oarlock_api.contract.health import GpuVerdict
from oarlock_trainer.health import look, messages, nvml
from oarlock_trainer.health.devices import NotOursError, find_devices
from oarlock_trainer.health.events import Events
from oarlock_trainer.health.messages import News
from oarlock_trainer.health.probes import PROBES
from oarlock_trainer.health.readings import NO_READINGS
from oarlock_trainer.health.symptom import name_of
from oarlock_trainer.health.watch import GpuWatch
from oarlock_trainer.runtime.clock import timestamp
from oarlock_trainer.runtime.parent import die_with

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oarlock_trainer.health.devices import Device
    from oarlock_trainer.health.events import NvmlEvent
    from oarlock_trainer.health.readings import Readings
    from oarlock_trainer.health.series import Probe
    from oarlock_trainer.health.symptom import Symptom

ROUND_SECONDS = 1.0
"""Between two beats: the fastest probe's pace, and how soon a GPU that says nothing by itself is missed."""
LOOK_SECONDS = 5.0
"""Between two looks at temperature, memory and the like, for people."""
_AGAIN_SECONDS = 10.0
"""Until an NVML that does not answer is asked again."""


class Monitor:
    """The state of one connection to NVML. Each method may raise nvml.SilentError."""

    def __init__(self, told: int, expected: int) -> None:
        self._told = told
        self._expected = expected
        self._found = find_devices(expected)
        self._devices = self._found.devices
        self._watch = GpuWatch(timestamp)
        self._events = Events(self._devices)
        self._due: dict[str, float] = {probe.name: 0.0 for probe in PROBES}
        self._answered: dict[tuple[str, int], bool] = {}
        """Whether a GPU answers a probe, from the first time that it was asked; it is not asked again where not."""
        self._silent: dict[int, str] = {}
        """Why a GPU had no answer when it was asked last."""
        self._coverage: dict[str, bool] = {}
        self._readings: dict[int, Readings] = {}
        self._look_at = 0.0
        self._pace_asked = False
        signal.signal(messages.ASK_PACE, self._note_question)
        self._tell(News.INVENTORY, gpus=[device.gpu.to_fields() for device in self._devices])

    def round(self) -> bool:
        """Read what is due, tell, and wait for events until the next round. False: other GPUs are there now, look anew."""
        began = time.monotonic()
        self._heed_queued()
        due = [probe for probe in PROBES if began >= self._due[probe.name]]
        self._due |= {probe.name: began + probe.every for probe in due}
        for device in self._devices:
            self._question(device, due)
        same = self._look_for_the_rest()
        if (coverage := self._covered()) != self._coverage:
            self._coverage = coverage
            self._tell(News.COVERAGE, probes=coverage)
        if began >= self._look_at:
            self._look_at = began + LOOK_SECONDS
            self._readings = {device.gpu.index: look.read(device.handle) for device in self._devices}
        if why := self._found.missing or "; ".join(self._silent.values()):
            self._tell(News.BLIND, why=why)
        else:
            self._tell(News.BEAT)
        if self._pace_asked:
            self._pace_asked = False
            found = (look.pace(device.gpu.index, device.handle) for device in self._devices)
            self._tell(News.PACE, pace=[one.to_fields() for one in found])
        while (left := began + ROUND_SECONDS - time.monotonic()) > 0:
            if told := self._events.wait(left):
                self._heed(told)
        return same

    def _note_question(self, _number: int, _frame: object) -> None:
        self._pace_asked = True

    def _heed_queued(self) -> None:
        """Events come before readings: a contained error (XID 94) must not be taken for the count that it leaves behind."""
        until = time.monotonic() + ROUND_SECONDS
        while told := self._events.wait(0.0):
            self._heed(told)
            if time.monotonic() >= until:  # a flood of them must not keep the beat away
                return

    def _question(self, device: Device, due: Sequence[Probe]) -> None:
        """Ask a GPU what is due; one in doubt is asked something in every round, whatever is due."""
        gpu = device.gpu
        known = [probe for probe in PROBES if self._answered.get((probe.name, gpu.index)) is not False]
        asked = [probe for probe in known if probe in due]
        if not asked and (gpu.index in self._silent or self._watch.doubts(gpu)):
            asked = known[:1]
        said = [words for probe in asked if (words := self._ask(probe, device)) is not None]
        if "" in said:
            self._silent.pop(gpu.index, None)
        elif said:
            self._silent[gpu.index] = f"NVML does not answer for {name_of(gpu)}: {said[-1]}"
        elif not any(self._answered.get((probe.name, gpu.index), True) for probe in PROBES):
            self._silent[gpu.index] = f"NVML supports no probe of {name_of(gpu)}"

    def _look_for_the_rest(self) -> bool:
        """Ask again for GPUs that have no handle. Returns whether those that have one are still the same."""
        if not self._found.broken and not self._found.missing:
            return True
        self._found = find_devices(self._expected)
        for gpu, words in self._found.broken:
            self._say(self._watch.lost(gpu, words, time.monotonic()))
        return self._found.indices == {device.gpu.index for device in self._devices}

    def _covered(self) -> dict[str, bool]:
        indices = [device.gpu.index for device in self._devices]
        answers = {
            probe.name: bool(indices) and all(self._answered.get((probe.name, index), False) for index in indices)
            for probe in PROBES
        }
        return {"xid": self._events.has_xids} | answers

    def _ask(self, probe: Probe, device: Device) -> str | None:
        """Ask one thing. Returns "" where the GPU had something to say, else NVML's words; None where it can't be asked."""
        key = (probe.name, device.gpu.index)
        if self._answered.get(key) is False:
            return None
        now = time.monotonic()
        try:
            value = probe.read(device.handle)
        except pynvml.NVMLError as error:
            if error.value in nvml.UNKNOWN and key not in self._answered:
                self._answered[key] = False
                return None
            if words := nvml.broken(error):
                self._say(self._watch.lost(device.gpu, words, now))
                return ""
            return nvml.said(error)  # it may be anybody's: it is asked again in the next round
        self._answered[key] = True
        self._say(self._watch.take(probe, device.gpu, value, now))
        return ""

    def _heed(self, told: NvmlEvent) -> None:
        device = told.device
        if device and told.xid is not None:
            self._say(self._watch.xid(device.gpu, told.xid, _action(device)))
        elif device and told.words:
            self._say(self._watch.told(device.gpu, "event", told.verdict, told.words))
        # Whatever happened, the driver's conclusion stands in what is polled: look at once.
        for probe in PROBES:
            if probe.every <= ROUND_SECONDS:
                for one in self._devices:
                    self._ask(probe, one)

    def _say(self, symptom: Symptom | None) -> None:
        if symptom and symptom.verdict is not GpuVerdict.IGNORE:
            # Those of the last look: a GPU that fails now may not answer for long, and the verdict must not wait.
            known = self._readings.get(symptom.gpu.index, NO_READINGS) if symptom.gpu else NO_READINGS
            self._tell(News.SYMPTOM, **replace(symptom, readings=known).to_fields())

    def _tell(self, news: News, **fields: object) -> None:
        tell(self._told, news, **fields)


def _action(device: Device) -> int | None:
    try:
        return nvml.recovery_action(device.handle)
    except pynvml.NVMLError:
        return None


def tell(descriptor: int, news: News, **fields: object) -> None:
    """Write one line; an agent that is gone ends the process."""
    os.write(descriptor, messages.encode(news, fields))


def watch_over(told: int, expected: int) -> bool:
    """Watch until NVML falls silent. Returns whether to try again: not where there is no NVML at all."""
    try:
        with nvml.opened():
            while True:
                monitor = Monitor(told, expected)
                while monitor.round():
                    pass
    except nvml.NoLibraryError as error:
        tell(told, News.BLIND, why=f"this container has no NVML ({error})")
        return False
    except NotOursError as error:
        tell(told, News.BLIND, why=str(error))
        return False
    except nvml.SilentError as error:
        tell(told, News.BLIND, why=f"NVML does not answer: {error}")
        return True


def main(arguments: Sequence[str] | None = None) -> int:
    """Watch until the agent ends."""
    parser = argparse.ArgumentParser(prog="python -m oarlock_trainer.health.monitor", description=__doc__)
    parser.add_argument("--told", type=int, required=True, help="descriptor that the agent reads")
    parser.add_argument("--parent", type=int, required=True, help="pid of the agent: the monitor dies with it")
    parser.add_argument("--expected", type=int, required=True, help="number of GPUs that the pod asked for")
    options = parser.parse_args(arguments)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)  # the agent decides
    signal.signal(messages.ASK_PACE, signal.SIG_IGN)  # until there is somebody to ask
    die_with(options.parent)
    while watch_over(options.told, options.expected):
        time.sleep(_AGAIN_SECONDS)
    return 0


if __name__ == "__main__":
    sys.exit(main())
