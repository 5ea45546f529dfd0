"""Queue: while a gang system holds the gang back, it asks for no node, and no deadline runs.

The time until it is let in is a stage of its own. It counts neither as the scheduler's nor towards activeDeadlineSeconds,
and no GPU is held in it. It ends when the queue's own object, or the first pod that has a node, says that it ended: an
operator may have been away meanwhile.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from oarlock_api.history import Attempt, RecoveryStage
from oarlock_operator import schedulers
from oarlock_operator.decide.draft import Draft, milliseconds_since
from oarlock_operator.model.observation import Observation
from oarlock_operator.model.reasons import Reason


def wait(o: Observation, draft: Draft) -> None:
    """Enter or leave the stage Queue, as the gang system tells."""
    stage, message = draft.status.recovery.stage, held(o, draft)
    if stage == RecoveryStage.SCHEDULE and message:
        # Since the pods were to be placed: a gate is there from the first moment, and other queues tell only later.
        draft.stage(RecoveryStage.QUEUE, draft.status.recovery.stage_start_time)
        draft.set(reason=Reason.QUEUED, message=message)
        draft.tell(Reason.QUEUED, message)
    elif stage == RecoveryStage.QUEUE and message:
        draft.set(message=message)
    elif stage == RecoveryStage.QUEUE:
        draft.stage(RecoveryStage.SCHEDULE, leave(o, draft))
        draft.set(reason=draft.attempt(draft.status.attempt).reason or Reason.STARTING, message=None)


def leave(o: Observation, draft: Draft) -> datetime:
    """Write down the time in the queue, where the gang is in one: it was let in, or waits no longer. Returns since when."""
    if draft.status.recovery.stage != RecoveryStage.QUEUE:
        return o.now
    since = _let_in(o, draft)
    waited = milliseconds_since(draft.status.recovery.stage_start_time, since)
    before = draft.attempt(draft.status.attempt).stage_milliseconds.queue or 0
    draft.measure(draft.status.attempt, "queue", before + waited)
    draft.set(inactive_seconds=draft.status.inactive_seconds + max(0, round(waited / 1000)))
    return since


def _let_in(o: Observation, draft: Draft) -> datetime:
    """When the wait was over, as far as it is told. Clocks differ: not before it began, and not later than now."""
    number, began = draft.status.attempt, draft.status.recovery.stage_start_time or o.now
    groups = [group.let_in for group in o.groups if group.attempt == number and group.let_in]
    pods = [pod.placed_at for pod in o.of_attempt(number) if pod.placed_at]
    return min(max(min([*groups, *pods], default=o.now), began), o.now)


def seconds_with_pods(attempt: Attempt) -> float:
    """How long an attempt's pods have waited in a queue. One that took none before it let the group in kept none waiting."""
    stages = attempt.stage_milliseconds
    waited = timedelta(milliseconds=stages.queue or 0)
    if attempt.start_time is None or attempt.created_time is None:
        return 0.0
    over = attempt.start_time + timedelta(milliseconds=stages.drain or 0) + waited
    return 0.0 if over <= attempt.created_time else waited.total_seconds()


def held(o: Observation, draft: Draft) -> str:
    """Why the current gang is held back, empty where it is not."""
    number, queue = draft.status.attempt, o.spec.scheduling.queue
    told = next((group.waits for group in o.groups if group.attempt == number), "")
    pods = [pod for pod in o.members(number) if not pod.stopped]
    gated = any(pod.gated for pod in pods)
    # Some queues take no pods before they let the group in: then there are none yet.
    if not gated and (not told or (pods and all(pod.scheduled for pod in pods))):
        return ""
    where = f"in the queue {queue}" if queue else "held back"
    said = told or ("" if queue else "by a scheduling gate")
    return f"{where}: {said}" if said else where


def ignored(o: Observation, draft: Draft) -> str:
    """What it means that the cluster did not take the pods for a gang; empty where it did, or does not have to."""
    message = schedulers.system_of(draft.status.resolved).ignored
    lonely = [pod.name for pod in o.of_attempt(draft.status.attempt) if not (pod.stopped or pod.grouped)]
    return f"{', '.join(lonely[:8])}: {message}" if message and lonely else ""
