"""When the job's page is written: after an attempt's first step, after checkpoints, and at the end.

A process of its own writes it (write.py), with low priority and bounds on its time and memory: neither a step nor the
agent's loop ever waits for it, and of its failures one line in the log tells. Only rank 0's agent has one, and one process at
a time. What befalls while one writes is in the next.
"""

from __future__ import annotations

import logging
import math
import os
import select
import signal
import time
from typing import TYPE_CHECKING

from oarlock_trainer.agent.ranks.rank_environment import without_secrets
from oarlock_trainer.runtime import children, own_module
from oarlock_trainer.runtime.wakeup import taken

if TYPE_CHECKING:
    from collections.abc import Mapping

    from oarlock_api.contract.status import PodStatus
    from oarlock_trainer.runtime.assignment import Assignment

log = logging.getLogger(__name__)

_WRITER = "oarlock_trainer.agent.report.write"
PAUSE_SECONDS = 60.0
"""Between two beginnings: jobs may save every few seconds."""
MOST_SECONDS = 120.0
"""Storage that hangs holds the process; then it is killed."""
LAST_SECONDS = 20.0
"""What the report gets of a job that is done, and waits for nothing else. It takes a second."""
LAST_SECONDS_OF_A_FAILURE = 1.0
"""The gang's restart waits for this pod, and the next attempt writes the report anew."""
RUNNING, SUCCEEDED, ENDED = "Running", "Succeeded", "Ended"
"""How the job stands, as its own agent knows: whether a failed attempt is followed by another one, the operator decides."""


class ReportPage:
    """To be called from the agent's main thread; nothing here raises, and only `write_last` waits."""

    def __init__(self, assignment: Assignment, environment: Mapping[str, str]) -> None:
        """`environment` is the container's."""
        self._leads = assignment.pod.rank == 0
        self._output = assignment.job.output_directory
        self._environment = without_secrets(environment)
        self._told: object = None
        self._due = False
        self._not_before = -math.inf
        self._kill_at = math.inf
        self.pid: int | None = None
        """Of the process that writes now."""
        self._killed: set[int] = set()
        """Not ended yet: on a dead mount a process cannot even be killed."""

    def observe(self, status: PodStatus, now: float) -> None:
        """Every turn of the agent's loop: write where there is something new to show."""
        told = (bool(status.first_step_at), status.checkpoint)
        self._due = self._due or (self._told is not None and told != self._told)
        self._told = told
        if now >= self._kill_at:
            log.warning("the report is not written: it took longer than %.0f s", MOST_SECONDS)
            self.kill()
        if self._due and self.pid is None and not self._killed and now >= self._not_before:
            self.write(RUNNING, now)

    def write(self, phase: str, now: float) -> None:
        """Write now, in the place of whoever still writes an older state."""
        if not self._leads:
            return
        self.kill()
        self._due = False
        self._not_before, self._kill_at = now + PAUSE_SECONDS, now + MOST_SECONDS
        command = own_module.command(_WRITER, "--output", self._output, "--phase", phase, "--parent", str(os.getpid()))
        try:
            self.pid = children.spawn(command, environment=self._environment)
        except OSError as error:
            log.warning("the report is not written: %s", error)

    def write_last(self, phase: str, wakeup: int) -> int:
        """Write how the job stands at the end, and wait until that is done, for as long as such an end can wait.

        Returns how many requests to leave came meanwhile: signals by `wakeup`. Whoever tells the pod to go waits for nothing.
        """
        self.write(phase, time.monotonic())
        deadline = time.monotonic() + (LAST_SECONDS if phase == SUCCEEDED else LAST_SECONDS_OF_A_FAILURE)
        requests = 0
        while self.pid and not requests and (left := deadline - time.monotonic()) > 0:
            select.select([wakeup], [], [], left)
            requests = len({signal.SIGTERM, signal.SIGINT} & set(taken(wakeup)))
            self.heed(children.reap())
        if self.pid and not requests:
            log.warning("the report is not written: the pod waits no longer for it")
        self.kill()
        return requests

    def heed(self, ended: Mapping[int, int]) -> None:
        """`ended`: pid -> code of processes that ended. What the writer says of itself stands in the log already."""
        self._killed -= ended.keys()
        if self.pid is not None and self.pid in ended:
            if code := ended[self.pid]:
                log.warning("the report is not written: its process ended with code %d", code)
            self.pid, self._kill_at = None, math.inf

    def kill(self) -> None:
        """End the process that writes; what it has not finished leaves the older page as it was."""
        if self.pid is not None:
            children.kill(self.pid)
            self._killed.add(self.pid)
            self.pid, self._kill_at = None, math.inf
