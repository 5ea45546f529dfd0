"""An attempt's life as lines of the story: what is worth telling of the way from one PodStatus to the next. Pure.

Only changes are told, and a stage once: saving comes back every few minutes, and its checkpoints are told.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from oarlock_api.contract.exit_codes import ExitCode, FailureClass, failure_class
from oarlock_api.contract.history import StoryLine, StoryType
from oarlock_api.contract.status import CheckResult, Degradation, with_names

if TYPE_CHECKING:
    from collections.abc import Mapping

    from oarlock_api.contract.report import Report
    from oarlock_api.contract.rounds import RoundEnd
    from oarlock_api.contract.status import PodStatus

_FIRST_STEP = "FirstStep"
"""The stage from the agent's start to the first optimizer step's end; the others are PodPhase's."""
_WORTH_A_LOOK = frozenset({CheckResult.WARNING, CheckResult.FAILED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Teller:
    """Whose lines they are."""

    job: str
    attempt: int
    rank: int
    node: str

    def line(self, type_: StoryType, at: str, *, reason: str = "", message: str = "", **data: Any) -> StoryLine:
        """A line; data that is None is left out."""
        known = {name: value for name, value in data.items() if value is not None}
        who = {"job": self.job, "attempt": self.attempt, "rank": self.rank, "node": self.node}
        return StoryLine(time=at, type=type_, reason=reason, message=message, data=known, **who)  # type: ignore[arg-type]

    def fault(self, report: Report) -> StoryLine:
        """The verdict over the pod."""
        told = json.loads(report.to_json())
        data = {name: value for name, value in told.items() if value not in (None, "", []) and name not in _ELSEWHERE}
        return self.line(
            StoryType.FAULT, report.detected_at, reason=report.failure_class, message=report.summary, **data
        )


_ELSEWHERE = {"version", "attempt", "rank", "podUid", "class", "detectedAt", "summary"}
"""Fields of a report that a line has itself."""


class Life:
    """What has been told of one pod's attempt."""

    def __init__(self, teller: Teller) -> None:
        self._teller = teller
        self._before: PodStatus | None = None
        self._entered_at = ""
        self._stages: set[str] = set()
        self.nodes: Mapping[int, str] = {}
        """Rank of a pod -> its node, once that is known."""
        self._left: dict[int, str] = {}
        """The node of a lost pod whose next one is elsewhere, until its round's end is told."""

    def move(self, nodes: Mapping[int, str]) -> list[int]:
        """Take in where pods are; the ranks of those that were not there before."""
        moved = [rank for rank, node in nodes.items() if self.nodes.get(rank) != node]
        self._left |= {rank: self.nodes[rank] for rank in moved if rank in self.nodes}
        self.nodes = nodes
        return moved

    def changes(self, status: PodStatus, *, at: str) -> list[StoryLine]:
        """Lines about what is new since the last status. `at` is RFC 3339."""
        before, self._before = self._before, status
        if before is None:
            self._entered_at = status.started_at or at
            return []
        if before is status:
            return []
        return [
            *self._checks(before, status, at),
            *self._stage(before, status, at),
            *self._begun(before, status, at),
            *self._rounds(before, status, at),
            *self._saved(before, status, at),
            *self._drilled(before, status, at),
            *self._degraded(before, status, at),
        ]

    def end(self, report: Report | None, status: PodStatus, *, at: str) -> StoryLine:
        """How the pod ends; without a report all is done."""
        code = report.code if report else int(ExitCode.DONE)
        reason = "Succeeded" if code == ExitCode.DONE else report.failure_class if report else ""
        saved = status.checkpoint
        return self._teller.line(
            StoryType.ENDED,
            at,
            reason="LeftOnRequest" if reason == FailureClass.REQUESTED else reason,
            message=report.summary if report else status.message,
            code=code,
            phase=str(status.phase),
            step=status.figures.step,
            checkpointStep=saved.step if saved else None,
            seconds=_seconds(status.started_at, at),
        )

    def _checks(self, before: PodStatus, status: PodStatus, at: str) -> list[StoryLine]:
        known = {(check.name, check.result) for check in before.preflight}
        return [
            self._teller.line(
                StoryType.CHECK,
                at,
                reason=str(check.result),
                message=check.detail,
                name=check.name,
                milliseconds=check.milliseconds,
            )
            for check in status.preflight
            if check.result in _WORTH_A_LOOK and (check.name, check.result) not in known
        ]

    def _stage(self, before: PodStatus, status: PodStatus, at: str) -> list[StoryLine]:
        if before.phase == status.phase:
            return []
        since, self._entered_at = self._entered_at, at
        if before.phase in self._stages:
            return []
        self._stages.add(before.phase)
        return [self._stage_line(str(before.phase), since, at, status)]

    def _begun(self, before: PodStatus, status: PodStatus, at: str) -> list[StoryLine]:
        if not status.first_step_at or before.first_step_at:
            return []
        step = status.resumed_from_step
        return [
            self._teller.line(StoryType.RESUMED, at, step=step),
            self._stage_line(_FIRST_STEP, status.started_at, status.first_step_at, status),
        ]

    def _stage_line(self, name: str, since: str, at: str, status: PodStatus) -> StoryLine:
        seconds = _seconds(since, at)
        return self._teller.line(StoryType.STAGE, at, name=name, seconds=seconds, step=status.figures.step)

    def _saved(self, before: PodStatus, status: PodStatus, at: str) -> list[StoryLine]:
        saved = status.checkpoint
        if saved is None or saved == before.checkpoint:
            return []
        stall = saved.stall_seconds
        return [self._teller.line(StoryType.CHECKPOINT, at, step=saved.step, path=saved.path, stallSeconds=stall)]

    def _rounds(self, before: PodStatus, status: PodStatus, at: str) -> list[StoryLine]:
        known = {end.number: end for end in before.rounds}
        lines = []
        for end in status.rounds:
            told = known.get(end.number)
            if told is None:
                lines.append(self._round_ended(end, at))
            if end.down_seconds is not None and (told is None or told.down_seconds is None):
                lines.append(self._restarted(end, at))
        return lines

    def _round_ended(self, end: RoundEnd, at: str) -> StoryLine:
        line = self._teller.line(
            StoryType.ROUND_ENDED,
            end.ended_at or at,
            reason=str(failure_class(end.code)),
            message=end.why,
            round=end.number,
            code=end.code,
            step=end.step,
            silentSeconds=end.silent_seconds or None,
            lostPod=end.lost_pod or None,
        )
        own = end.rank == self._teller.rank
        node = (self._left.pop(end.rank, "") if end.lost_pod else "") or self.nodes.get(end.rank, "")
        return line if own else replace(line, rank=end.rank, node=node)

    def _restarted(self, end: RoundEnd, at: str) -> StoryLine:
        return self._teller.line(
            StoryType.RANKS_RESTARTED,
            at,
            round=end.number,
            step=end.resumed_step,
            downSeconds=end.down_seconds,
            startWaitSeconds=end.start_wait_seconds,
            fromMemory=end.from_memory or None,
        )

    def _drilled(self, before: PodStatus, status: PodStatus, at: str) -> list[StoryLine]:
        drill = status.drill
        if drill is None or drill == before.drill:
            return []
        words = f"a save as at an eviction took {drill.seconds:.1f} s, with step {drill.step}"
        return [self._teller.line(StoryType.DRILL, at, message=words, step=drill.step, seconds=drill.seconds)]

    def _degraded(self, before: PodStatus, status: PodStatus, at: str) -> list[StoryLine]:
        old, new = before.degraded, status.degraded
        changed = [reason for reason in {**old, **new} if bool(old.get(reason)) != bool(new.get(reason))]
        return [
            self._slow_rank(before, status, at)
            if reason == Degradation.SLOW_RANK
            else self._teller.line(StoryType.DEGRADED, at, reason=str(reason), message=new.get(reason, ""))
            for reason in changed
        ]

    def _slow_rank(self, before: PodStatus, status: PodStatus, at: str) -> StoryLine:
        names = {rank: f"pod {rank} on {node}" for rank, node in self.nodes.items() if node}
        message = with_names(status.degraded.get(Degradation.SLOW_RANK, ""), names)
        pod = before.slow_pod if status.slow_pod is None else status.slow_pod
        line = self._teller.line(StoryType.SLOW_RANK, at, reason=str(Degradation.SLOW_RANK), message=message)
        return line if pod is None else replace(line, rank=pod, node=self.nodes.get(pod, ""))


def _seconds(since: str, until: str) -> float | None:
    try:
        # Python 3.10, which the bundle may run on, does not know the Z.
        start, end = (datetime.fromisoformat(moment.replace("Z", "+00:00")) for moment in (since, until))  # noqa: FURB162
        return round((end - start).total_seconds(), 3)
    except ValueError:
        return None
