"""The run's life as events: what is worth telling of the way from one PodStatus to the next. No time, no chance inside.

Only changes are told. A stage is news the first time the pod is in it, and a detail (level Debug) when it ends or comes
back, as saving does every few minutes. Progress is told at most every minute, however fast the steps are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oarlock_api.contract.exit_codes import ExitCode, FailureClass
from oarlock_api.contract.webhooks import WebhookLevel
from oarlock_trainer.agent.webhooks import events

if TYPE_CHECKING:
    from oarlock_api.contract.report import Report
    from oarlock_api.contract.status import PodStatus
    from oarlock_trainer.agent.webhooks.envelope import Identity, WebhookEvent

PROGRESS_SECONDS = 60.0


class Story:
    """What has been told of one pod's attempt."""

    def __init__(self, identity: Identity) -> None:
        self._identity = identity
        self._before: PodStatus | None = None
        self._visits: dict[str, int] = {}
        self._progress_at: float | None = None

    def changes(self, status: PodStatus, *, at: str, now: float) -> list[WebhookEvent]:
        """Events since the last status. `at` is RFC 3339, `now` a clock that only goes forward."""
        before, self._before = self._before, status
        known = {end.number for end in (before or status).rounds}
        ends = [end for end in status.rounds if end.number not in known]
        told = [events.restarted(self._identity, at, end=end, status=status) for end in ends]
        trained = {end.number for end in (before or status).rounds if end.down_seconds is not None}
        told += [
            events.trains_again(self._identity, at, end=end, status=status)
            for end in status.rounds
            if end.down_seconds is not None and end.number not in trained
        ]
        entered = before is None or before.phase != status.phase
        told += self._stages(before, status, at) if entered else []
        if status.first_step_at and not (before and before.first_step_at):
            told.append(self._begun(status, at))
            self._progress_at = now
        elif before and status.figures.step != before.figures.step and self._is_progress_due(now):
            told.append(events.progress(self._identity, at, status=status))
            self._progress_at = now
        if status.checkpoint and status.checkpoint != (before and before.checkpoint):
            saved = events.checkpoint(self._identity, at, status=status)
            told += [saved] if saved else []
        return told

    def end(self, report: Report | None, status: PodStatus, *, at: str) -> list[WebhookEvent]:
        """The last words about the attempt; without a report all is done."""
        state, level = _ending(report)
        ended = events.training_status(
            self._identity,
            at,
            state=state,
            level=level,
            status=status,
            message=report.summary if report and report.summary else f"Training {state}",
            reason=report.failure_class if report else "",
        )
        return [ended, events.summary(self._identity, at, status=status, state=state)]

    def _is_progress_due(self, now: float) -> bool:
        return self._progress_at is not None and now - self._progress_at >= PROGRESS_SECONDS

    def _stages(self, before: PodStatus | None, status: PodStatus, at: str) -> list[WebhookEvent]:
        told = []
        if before is not None:
            told.append(self._stage(before, at, over=True, level=WebhookLevel.DEBUG))
        visits = self._visits[status.phase] = self._visits.get(status.phase, 0) + 1
        level = WebhookLevel.INFO if visits == 1 else WebhookLevel.DEBUG
        told.append(self._stage(status, at, over=False, level=level))
        return told

    def _stage(self, status: PodStatus, at: str, *, over: bool, level: WebhookLevel) -> WebhookEvent:
        count = self._visits.get(status.phase, 0)
        return events.stage(self._identity, at, status=status, over=over, level=level, count=count)

    def _begun(self, status: PodStatus, at: str) -> WebhookEvent:
        resumed = status.resumed_from_step
        return events.training_status(
            self._identity,
            at,
            state="started" if resumed is None else "resumed",
            level=WebhookLevel.INFO,
            status=status,
            message="Training started"
            if resumed is None
            else f"Training resumed from the checkpoint of step {resumed}",
        )


def _ending(report: Report | None) -> tuple[str, WebhookLevel]:
    if report is None or report.code == ExitCode.DONE:
        return "completed", WebhookLevel.INFO
    if report.code == ExitCode.LEFT_ON_REQUEST:
        return "left", WebhookLevel.INFO
    # Whoever lost a peer has nothing to mend: the peer's own pod tells of the error.
    lost = report.failure_class == FailureClass.PEER_LOST
    return "failed", WebhookLevel.WARNING if lost else WebhookLevel.ERROR


def is_own_error(report: Report) -> bool:
    """Whether a pod's end is an error of its own, and no GPU's (gpu.fault tells of that)."""
    return report.code != ExitCode.DONE and report.failure_class not in (
        FailureClass.PEER_LOST,
        FailureClass.REQUESTED,
        FailureClass.GPU,
    )
