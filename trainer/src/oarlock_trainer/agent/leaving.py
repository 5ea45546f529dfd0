"""What a pod still does when its end is certain: it tells, keeps and sweeps, for moments: the gang's restart waits for it."""

from __future__ import annotations

import logging
import select
import signal
import time
from typing import TYPE_CHECKING

from oarlock_trainer.agent import termination
from oarlock_trainer.agent.hangs.hang_guard import KEEP_SECONDS
from oarlock_trainer.runtime import children, clock, wakeup

if TYPE_CHECKING:
    import threading
    from pathlib import Path

    from oarlock_api.contract.report import Report
    from oarlock_api.contract.status import PodStatus
    from oarlock_trainer.agent.hangs.hang_guard import HangGuard
    from oarlock_trainer.agent.history.history import History
    from oarlock_trainer.agent.ranks.ranks import Ranks
    from oarlock_trainer.agent.webhooks.webhooks import Webhooks

log = logging.getLogger(__name__)

WEBHOOKS_SECONDS = 1.0
"""What messages that still wait get at the end: the gang's restart waits for this pod."""
HISTORY_SECONDS = 1.0
"""What the last lines of the history get, on storage that works some milliseconds."""
_LINGER_SECONDS = 2.0
"""What a victim, its ranks gone, waits to be told to go. A pod that is deleted leaves its node within a third of a second,
one that ends by itself takes its kubelet 1.2 s (bench/recovery.py), and the next gang wants the node."""
_SWEEP_SECONDS = 0.5
_REPORT_COPY_SECONDS = 0.5


class LastWords:
    """What is told and kept of a pod's end; without a report all is done. Storage is written to by threads."""

    def __init__(self, output: Path, report: Report | None, status: PodStatus) -> None:
        self._output, self._report, self._status = output, report, status
        self._threads: list[tuple[threading.Thread, float]] = []

    def tell(self, webhooks: Webhooks, history: History) -> None:
        """Tell everybody, and begin to copy the report."""
        webhooks.ended(self._report, self._status)
        history.ended(self._report, self._status)
        if self._report:
            self._threads.append((termination.copy_to_output(self._report, self._output), _REPORT_COPY_SECONDS))

    def keep(self, guard: HangGuard, history: History) -> None:
        """Begin to keep what a hang has shown."""
        keeping, name = guard.keep(self._output, at=clock.timestamp())
        history.kept_stacks(name)
        self._threads.append((keeping, KEEP_SECONDS))

    def wait(self) -> None:
        """Give what was begun its moment."""
        for thread, seconds in self._threads:
            thread.join(seconds)


def sweep(ranks: Ranks) -> bool:
    """Kill the ranks and all that descends from this process; whether nothing of it is left."""
    ranks.kill()
    return children.end_all(within=_SWEEP_SECONDS)


def linger(waking: int) -> None:
    """Wait to be told to go, for moments; `waking` is readable when a signal has come."""
    log.info("waiting to be told to go")
    deadline = time.monotonic() + _LINGER_SECONDS
    while (left := deadline - time.monotonic()) > 0:
        select.select([waking], [], [], left)
        if {signal.SIGTERM, signal.SIGINT} & set(wakeup.taken(waking)):
            return
