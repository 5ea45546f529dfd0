"""Suspend and resume: the gang saves and leaves, the GPUs are free, and the next attempt goes on from the checkpoint.

The wish to stop stands in the status (stage Suspending) before a pod is deleted. The condition Suspended is True only once
nothing runs any more: from then on the job may be changed.
"""

from __future__ import annotations

from oarlock_api.history import RecoveryStage
from oarlock_operator import schedulers
from oarlock_operator.decide import attempt, delete_groups, queue
from oarlock_operator.decide.draft import Draft
from oarlock_operator.decide.final_status import note_final_status
from oarlock_operator.decide.teardown import delete, free_nodes
from oarlock_operator.model.observation import Observation
from oarlock_operator.model.reasons import Reason

LOOK_AGAIN_SECONDS = 5.0
UNAVAILABLE_SECONDS = 30.0
"""Until the next look whether a gang system is there: each one asks the cluster what it serves."""


def suspend(o: Observation, draft: Draft) -> bool:
    """Stop a gang that shall not run, or start it again; True while the job is, or becomes, suspended."""
    stage = draft.status.recovery.stage
    if stage == RecoveryStage.SUSPENDED:
        if not _may_resume(o, draft):
            return True
        _resume(o, draft)
        return False
    if not o.spec.suspend and stage != RecoveryStage.SUSPENDING:
        return False
    if stage != RecoveryStage.SUSPENDING and draft.status.attempt:
        queue.leave(o, draft)
        attempt.close(o, draft, Reason.SUSPENDED)
        draft.stage(RecoveryStage.SUSPENDING, o.now)
        draft.set(reason=Reason.SUSPENDING, message="the pods save and leave")
        draft.tell(Reason.SUSPENDING, f"attempt {draft.status.attempt} saves and leaves")
    running = [pod for pod in o.pods if not pod.stopped]
    if running:
        # No grace named: their own, in which they save.
        delete(draft, running, grace_seconds=None)
        draft.again(LOOK_AGAIN_SECONDS)
        return True
    if free_nodes(o, draft):
        return True
    _suspended(o, draft)
    if not o.spec.suspend:
        draft.again(0)  # wanted again meanwhile, and nothing that ends will wake anybody
    return True


def _may_resume(o: Observation, draft: Draft) -> bool:
    if o.spec.suspend:
        # Again, perhaps: whatever stood in the way of a resume does so no longer.
        draft.set(reason=Reason.SUSPENDED, message=_message(draft))
        return False
    if message := schedulers.unavailable(o.spec.scheduling, o.systems):
        # It may have been changed to this while it was suspended; what is finished could not be changed back.
        draft.set(reason=Reason.GANG_UNAVAILABLE, message=message)
        draft.again(UNAVAILABLE_SECONDS)
        return False
    if delete_groups.due(o, draft):
        # From now on groups may be another system's, and nobody would look for these: they go first.
        draft.again(0)
        return False
    return True


def _suspended(o: Observation, draft: Draft) -> None:
    number = draft.status.attempt
    if number:
        note_final_status(o, draft)
        attempt.end(o, draft, number)
    message = _message(draft)
    draft.stage(RecoveryStage.SUSPENDED, o.now)
    draft.set(reason=Reason.SUSPENDED, message=message)
    draft.tell(Reason.SUSPENDED, message)


def _message(draft: Draft) -> str:
    saved = draft.status.latest_checkpoint
    kept = f"; the newest checkpoint is step {saved.step}" if saved else ""
    return f"nothing runs{kept}. Set spec.suspend to false to go on."


def _resume(o: Observation, draft: Draft) -> None:
    if draft.status.attempt == 0:
        draft.stage(None, None)
        return
    since = draft.status.recovery.stage_start_time or o.now
    away = max(0, round((o.now - since).total_seconds()))
    draft.set(inactive_seconds=draft.status.inactive_seconds + away)
    number = attempt.begin(o, draft, reason=Reason.RESUMED, stage=RecoveryStage.SCHEDULE)
    draft.set(reason=Reason.RESUMED, message=None)
    draft.tell(Reason.RESUMED, f"attempt {number} goes on from the newest checkpoint")
