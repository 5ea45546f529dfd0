"""The health monitor's process as the agent sees it: started, listened to, missed when it is silent, started again.

A monitor that hangs or crashes is no fault of a GPU: until the next one has spoken the GPUs are unmonitored, and that is
shown. There is never more than one: where the driver keeps a killed one from ending, a second would only be stuck as well.
What a monitor has warned of stays a warning under the next one, which takes it for what was before. Only the main thread
may use it (see children.py).
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import replace
from typing import TYPE_CHECKING

from oarlock_api.contract.health import CircuitState, GpuVerdict, Health, HealthState
from oarlock_trainer.health import messages
from oarlock_trainer.health.messages import News
from oarlock_trainer.runtime import children, own_module
from oarlock_trainer.runtime.pipe_lines import PipeLines

if TYPE_CHECKING:
    from collections.abc import Mapping

    from oarlock_trainer.health.messages import Line
    from oarlock_trainer.health.pace import GpuPace
    from oarlock_trainer.health.symptom import Symptom
    from oarlock_trainer.runtime.assignment import Assignment

MONITOR = "oarlock_trainer.health.monitor"
"""The module that is the monitor's process."""
SILENT_SECONDS = 15.0
"""A monitor tells of itself every second; loading its library, and one slow question to the driver, take some."""
_BACKOFF = (1.0, 5.0, 30.0, 60.0)
PROVEN_SECONDS = 60.0
"""A monitor that has told of itself for so long is started again soon when it fails."""
_DONE = 0


class GpuHealth:
    """This pod's GPUs. `health` is for /status; `descriptor` is readable when the monitor has told something."""

    def __init__(self, assignment: Assignment, environment: Mapping[str, str], *, now: float) -> None:
        self.health = Health()
        self.pace: tuple[GpuPace, ...] = ()
        """What the monitor has said since ask_pace; empty until it has, or where nothing can be known."""
        self.descriptor, self._tells = os.pipe()
        self._told = PipeLines(self.descriptor, longest=messages.MAX_LINE)
        self._expected = assignment.job.gpus_per_node
        self._environment = environment
        self._pid: int | None = None
        self._killed: int | None = None
        """A monitor that was killed and has not ended yet."""
        self._beats_since: float | None = None
        self._heard_at = self._due = now
        self._failures = 0
        self._given_up = self._expected == 0
        self._new: list[Symptom] = []
        self._seen: set[tuple[object, ...]] = set()
        self._hold: Symptom | None = None

    @property
    def watched(self) -> bool:
        """Whether a monitor sees the GPUs now, so that one that broke is told of within a moment."""
        return (
            self.health.state in (HealthState.HEALTHY, HealthState.HOLD, HealthState.FAULTY) and self._pid is not None
        )

    def take(self) -> list[Symptom]:
        """What is new since the last call: each symptom once, whichever monitor saw it."""
        new, self._new = self._new, []
        return new

    def ask_pace(self) -> None:
        """Have the monitor say within a second or two how fast the GPUs run, where there is one."""
        self.pace = ()
        if self._pid is not None and self._beats_since is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, messages.ASK_PACE)

    def tend(self, ended: Mapping[int, int], now: float) -> None:
        """Listen to the monitor, and see that there is one. `ended`: pid -> code of processes that ended."""
        self._hear(now)
        if self._killed in ended:
            self._killed = None
        if self._pid is not None and self._pid in ended:
            self._take_end(ended[self._pid], now)
        elif self._pid is not None and now - self._heard_at > SILENT_SECONDS:
            children.kill(self._pid)
            self._killed = self._pid
            self._lose(f"the GPU monitor was silent for {SILENT_SECONDS:g} s", now)
        if self._pid is None and not self._given_up and now >= self._due:
            if self._killed is None:
                self._start(now)
            else:
                self._blind(
                    "the GPU monitor was killed and does not end: it is stuck in the driver, see the node's log"
                )

    def open_circuit(self, symptom: Symptom) -> None:
        """Show that the GPUs are not used any more, and why."""
        self._show(symptom, HealthState.FAULTY, CircuitState.OPEN)

    def close_circuit(self) -> None:
        """New processes use the GPUs: what ended those before them is over. What has warned stays a warning."""
        self._seen = {key for key in self._seen if GpuVerdict.RESTART_PROCESS not in key}
        if self.health.state is not HealthState.FAULTY:
            return
        state = HealthState.HEALTHY if self._beats_since is not None else HealthState.UNKNOWN
        self.health = replace(self.health, state=state, circuit=CircuitState.CLOSED, reason="", gpu=None, since="")
        if self._hold:
            self._show(self._hold, HealthState.HOLD, CircuitState.CLOSED)

    def _hear(self, now: float) -> None:
        for line in self._told.read():
            if said := messages.decode(line):
                self._take(said, now)

    def _take(self, line: Line, now: float) -> None:
        self._heard_at = now
        if line.news is News.INVENTORY:
            self.health = replace(self.health, gpus=line.gpus)
        elif line.news is News.COVERAGE:
            self.health = replace(self.health, probes=dict(line.probes))
        elif line.news is News.PACE:
            self.pace = line.pace
        elif line.news is News.BEAT:
            self._take_beat(now)
        elif line.news is News.BLIND:
            self._blind(line.why)
        elif line.symptom and self._is_new(line.symptom):
            self._new.append(line.symptom)
            if line.symptom.verdict is GpuVerdict.HOLD:
                self._hold = line.symptom
                held = dict.fromkeys((*self.health.held, line.symptom.probe))
                self.health = replace(self.health, held=tuple(held))
                if self.health.state is not HealthState.FAULTY:
                    self._show(line.symptom, HealthState.HOLD, CircuitState.CLOSED)

    def _take_beat(self, now: float) -> None:
        if self._pid is None:
            return  # the last words of one that was killed
        self._beats_since = now if self._beats_since is None else self._beats_since
        if now - self._beats_since >= PROVEN_SECONDS:
            self._failures = 0
        if self.health.state in (HealthState.UNKNOWN, HealthState.UNMONITORED):
            if self._hold:
                self._show(self._hold, HealthState.HOLD, CircuitState.CLOSED)
            else:
                self.health = replace(self.health, state=HealthState.HEALTHY, reason="")

    def _is_new(self, symptom: Symptom) -> bool:
        if symptom.xid is not None and symptom.verdict is not GpuVerdict.HOLD:
            return True  # each has ended processes
        gpu = (symptom.gpu.uuid or symptom.gpu.index) if symptom.gpu else None
        key = (gpu, symptom.probe, symptom.verdict, symptom.xid)
        new = key not in self._seen
        self._seen.add(key)
        return new

    def _show(self, symptom: Symptom, state: HealthState, circuit: CircuitState) -> None:
        self.health = replace(
            self.health, state=state, circuit=circuit, reason=symptom.summary, gpu=symptom.gpu, since=symptom.at
        )

    def _take_end(self, code: int, now: float) -> None:
        if code == _DONE:  # it has said why there is nothing to watch
            self._pid, self._given_up = None, True
            return
        self._lose(f"the GPU monitor ended ({code})", now)

    def _lose(self, why: str, now: float) -> None:
        self._due = now + _BACKOFF[min(self._failures, len(_BACKOFF) - 1)]
        self._failures += 1
        self._pid = self._beats_since = None
        self._blind(f"{why}; it is started again")

    def _blind(self, why: str) -> None:
        known = (self.health.state, self.health.reason)
        if self.health.state is not HealthState.FAULTY and known != (HealthState.UNMONITORED, why):
            self.health = replace(self.health, state=HealthState.UNMONITORED, reason=why, gpu=None, since="")

    def _start(self, now: float) -> None:
        command = own_module.command(
            MONITOR,
            *("--told", str(self._tells), "--parent", str(os.getpid()), "--expected", str(self._expected)),
        )
        self._heard_at = now
        self._pid = children.spawn(command, environment=self._environment, inherit=(self._tells,))
