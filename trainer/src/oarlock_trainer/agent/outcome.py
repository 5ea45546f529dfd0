"""How this pod ends, as far as it is known: who has ended, the verdict over that, and its report.

The report is written the moment a verdict is known, and again only if later endings correct it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from oarlock_api.contract.exit_codes import ExitCode
from oarlock_api.contract.status import PodPhase
from oarlock_api.contract.wire import integer, text
from oarlock_trainer import channel, last_words
from oarlock_trainer.agent import cgroup, termination
from oarlock_trainer.agent.verdict import Ending, Verdict, is_failure, judge

if TYPE_CHECKING:
    from pathlib import Path

    from oarlock_api.contract.report import Report
    from oarlock_trainer.agent.assignment import Assignment
    from oarlock_trainer.agent.status_board import StatusBoard
    from oarlock_trainer.channel import Message

log = logging.getLogger(__name__)


class Outcome:
    """The endings of this node's ranks and what follows from them. `verdict` is None while unknown, `report` while good."""

    def __init__(self, assignment: Assignment, board: StatusBoard, termination_log: Path) -> None:
        self._assignment = assignment
        self._board = board
        self._termination_log = termination_log
        self._endings: dict[int, Ending] = {}
        first = assignment.first_rank
        self._running = set(range(first, first + assignment.ranks_per_node))
        self._memory_kills_before = cgroup.out_of_memory_kills() or 0
        self.verdict: Verdict | None = None
        self.report: Report | None = None

    @property
    def running(self) -> int:
        """Ranks whose process has not ended."""
        return len(self._running)

    def take_last_words(self, message: Message) -> None:
        """A rank says why it is about to end. They say more than how its process ends: teardown may crash."""
        code = integer(message.fields.get("code")) or 1
        summary = last_words.telling(text(message.fields.get("summary"), channel.MAX_LINE))[:1500]
        self._take(Ending(rank=message.rank, code=min(max(code, 1), 255), summary=summary))

    def take_end(self, rank: int, code: int) -> None:
        """A rank's process ended with this code, or was killed by minus this signal."""
        log.info("rank %d ended", rank, extra={"code": code})
        self._running.discard(rank)
        self._take(Ending(rank=rank, code=code))

    def take_end_of_host(self, code: int) -> None:
        """The rank host ended before its ranks: the kernel has killed them with it."""
        if self.verdict is None:
            self.take_end(min(self._running, default=self._assignment.first_rank), code or 1)

    def conclude(self, verdict: Verdict) -> None:
        """Tell this verdict everywhere, unless it is the one that stands there already."""
        if verdict == self.verdict:
            return
        self.verdict = verdict
        failed = is_failure(verdict.code)
        if verdict.code == ExitCode.LEFT_ON_REQUEST:
            self._board.note(verdict.summary)
        else:
            self._board.enter(PodPhase.FAILED if failed else PodPhase.DONE, verdict.summary)
        report = termination.report_of(verdict, self._assignment.pod, self._board.status)
        termination.write(report, self._termination_log)
        self.report = report if verdict.code != ExitCode.DONE else None
        log.log(logging.ERROR if failed else logging.INFO, "%s", verdict.summary, extra={"code": verdict.code})

    def _take(self, ending: Ending) -> None:
        self._endings.setdefault(ending.rank, ending)
        if self.verdict is not None and self.verdict.code == ExitCode.HANG:
            return  # whatever ends now was shaken awake by us
        failed = any(is_failure(seen.code) for seen in self._endings.values())
        if failed or len(self._endings) == self._assignment.ranks_per_node:
            kills = (cgroup.out_of_memory_kills() or 0) - self._memory_kills_before
            self.conclude(judge(list(self._endings.values()), out_of_memory_kills=kills))
