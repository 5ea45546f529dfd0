"""How this pod ends, as far as it is known: who has ended, the verdict over that, and its report.

The report is written the moment a verdict is known, and again only if later endings correct it.
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from oarlock_api.contract.exit_codes import ExitCode
from oarlock_api.contract.health import GpuVerdict
from oarlock_api.contract.report import is_proven
from oarlock_api.contract.status import PodPhase
from oarlock_api.contract.wire import integer, text
from oarlock_trainer.agent import termination
from oarlock_trainer.agent.verdict import Ending, Verdict, is_failure, judge, understand
from oarlock_trainer.agent.webhooks.redaction import without_secrets
from oarlock_trainer.runtime import cgroup, channel, error_summary

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from oarlock_api.contract.report import Report
    from oarlock_trainer.agent.ranks.ranks import Ranks
    from oarlock_trainer.agent.status.status_board import StatusBoard
    from oarlock_trainer.health.symptom import Symptom
    from oarlock_trainer.runtime.assignment import Pod
    from oarlock_trainer.runtime.channel import Message

log = logging.getLogger(__name__)


_CODES = {GpuVerdict.REPLACE_NODE: ExitCode.REPLACE_NODE, GpuVerdict.RESTART_PROCESS: ExitCode.RESTART_PROCESS}
_OWN_MATTER = {ExitCode.CONFIGURATION, ExitCode.FENCED}
"""What no GPU explains, whatever it does at the same time."""


class Outcome:
    """The endings of this node's ranks and what follows from them. `verdict` is None while unknown, `report` while good.

    `secrets` are values that nothing tells: the report is read by whoever may read the job, or its Events.
    """

    def __init__(
        self,
        pod: Pod,
        board: StatusBoard,
        termination_log: Path,
        *,
        ranks: Ranks,
        secrets: Sequence[str] = (),
        stays: Callable[[int], bool] = lambda _: False,
    ) -> None:
        """`stays`: whether the pod stays after ranks that end with this code; then nobody is told."""
        self._pod = pod
        self._ranks = ranks
        self._stays = stays
        self._told: Verdict | None = None
        self._secrets = secrets
        self._board = board
        self._termination_log = termination_log
        self._endings: dict[int, Ending] = {}
        self._running = set(ranks.numbers)
        self._memory_kills_before = cgroup.out_of_memory_kills() or 0
        self.verdict: Verdict | None = None
        self.report: Report | None = None
        self.leaving_since: float | None = None
        """When the ranks were asked to leave, on the monotonic clock."""

    @property
    def running(self) -> int:
        """Ranks whose process has not ended."""
        return len(self._running)

    def take_error(self, message: Message) -> None:
        """A rank says why it is about to end. That says more than how its process ends: teardown may crash."""
        code = integer(message.fields.get("code")) or 1
        said = without_secrets(text(message.fields.get("summary"), channel.MAX_LINE), self._secrets)
        summary = error_summary.telling(said)[:1500]
        self._take(Ending(rank=message.rank, code=min(max(code, 1), 255), summary=summary))

    def take_end(self, rank: int, code: int) -> None:
        """A rank's process ended with this code, or was killed by minus this signal."""
        log.info("rank %d ended", rank, extra={"code": code})
        self._running.discard(rank)
        self._take(Ending(rank=rank, code=code))

    def take_end_of_host(self, code: int) -> None:
        """The rank host ended before its ranks: the kernel has killed them with it."""
        if self.verdict is None:
            self.take_end(min(self._running, default=self._ranks.numbers[0]), code or 1)

    def take_symptom(self, symptom: Symptom) -> bool:
        """Take in a GPU's symptom; returns whether it decides how the pod ends. It outranks what ranks say of the same fault.

        A GPU that must be replaced outranks one that needs new processes only: that one may have been its echo.
        """
        code, known = _CODES.get(symptom.verdict), self.verdict.code if self.verdict else None
        if code is None or known in _OWN_MATTER or known == ExitCode.REPLACE_NODE:
            return False
        if code == known == ExitCode.RESTART_PROCESS and self.verdict and is_proven(self.verdict.evidence):
            return False
        self.conclude(
            Verdict(
                code=code,
                summary=symptom.summary,
                first_error_rank=self.verdict.first_error_rank if self.verdict else None,
                gpu=symptom.gpu,
                xid=symptom.xid,
                evidence=(symptom.evidence,),
            )
        )
        return True

    def take_claim(self, symptom: Symptom) -> None:
        """The program itself blames a GPU: the processes start anew, whatever it asks for; only NVML decides on the node."""
        if self.verdict is None:
            self.conclude(
                Verdict(
                    code=ExitCode.RESTART_PROCESS,
                    summary=symptom.summary,
                    gpu=symptom.gpu,
                    evidence=(symptom.evidence,),
                )
            )

    @property
    def awaits_gpu(self) -> bool:
        """Whether the processes end for a GPU's sake, by a rank's words or a driver's, and a driver may know of worse."""
        return self.verdict is not None and self.verdict.code == ExitCode.RESTART_PROCESS

    def conclude(self, verdict: Verdict) -> None:
        """Take this verdict, unless it is the one that stands already; the pod's last one is told everywhere."""
        verdict = replace(verdict, summary=without_secrets(verdict.summary, self._secrets))
        if verdict == self.verdict:
            return
        self.verdict = verdict
        if self._stays(verdict.code):
            log.warning("%s", verdict.summary, extra={"code": verdict.code})
        else:
            self.tell()

    def tell(self) -> None:
        """Tell the verdict everywhere: the pod ends by it."""
        verdict = self.verdict
        if verdict is None or verdict == self._told:
            return
        self._told = verdict
        failed = is_failure(verdict.code)
        if verdict.code == ExitCode.LEFT_ON_REQUEST:
            self._board.note(verdict.summary)
        else:
            self._board.enter(PodPhase.FAILED if failed else PodPhase.DONE, verdict.summary)
        report = termination.report_of(
            verdict, self._pod, self._board.status, leaving_seconds=self._leaving_seconds(verdict)
        )
        termination.write(report, self._termination_log)
        self.report = report if verdict.code != ExitCode.DONE else None
        log.log(logging.ERROR if failed else logging.INFO, "%s", verdict.summary, extra={"code": verdict.code})

    def _leaving_seconds(self, verdict: Verdict) -> float | None:
        """How long it took ranks that had trained to save and leave; None of those that did not, or were killed."""
        trained = self._board.status.figures.step is not None
        all_said_so = verdict.code == ExitCode.LEFT_ON_REQUEST and len(self._endings) == len(self._ranks.numbers)
        if not (all_said_so and trained) or self.leaving_since is None:
            return None
        return time.monotonic() - self.leaving_since

    def _take(self, ending: Ending) -> None:
        self._endings.setdefault(ending.rank, self._understood(ending))
        if self.verdict is not None and (self.verdict.code == ExitCode.HANG or self.verdict.evidence):
            return  # whatever ends now was shaken awake by us, or fell with its GPU
        failed = any(is_failure(seen.code) for seen in self._endings.values())
        if failed or len(self._endings) == len(self._ranks.numbers):
            kills = (cgroup.out_of_memory_kills() or 0) - self._memory_kills_before
            self.conclude(judge(list(self._endings.values()), out_of_memory_kills=kills, who=self._ranks.name))

    def _understood(self, ending: Ending) -> Ending:
        # Before anything of it is cut off, for half a secret is not known as one.
        output = without_secrets(self._ranks.last_output, self._secrets)
        found = understand(ending, output)
        if found.code > 0 and not found.summary and not self._ranks.tells_failures:
            return replace(found, summary=error_summary.of_output(output))
        return found
