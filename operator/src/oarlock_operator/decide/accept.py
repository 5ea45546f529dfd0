"""Accept a job, or end it with a message that says what to change: what neither the schema nor CEL could see."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from oarlock_api.history import RecoveryStage
from oarlock_api.status import ConditionType
from oarlock_operator import schedulers
from oarlock_operator.decide.draft import Draft
from oarlock_operator.decide.finish import fail
from oarlock_operator.model.observation import Observation
from oarlock_operator.model.reasons import Reason

GANG_PATIENCE = timedelta(seconds=60)
LOOK_AGAIN_SECONDS = 5.0


def _is_suspended(o: Observation, draft: Draft) -> bool:
    """Its gang is chosen when it is resumed, and until then its system may come and go."""
    wanted = o.job.spec is not None and o.job.spec.suspend
    return wanted or draft.status.recovery.stage == RecoveryStage.SUSPENDED


def _is_missed_for_long(o: Observation, draft: Draft) -> bool:
    """Whether the job was told for a minute that its gang system is not there: a server that starts serves it only later."""
    told = next((c for c in draft.status.conditions if c.type == ConditionType.ACCEPTED), None)
    known = told is not None and told.reason == Reason.GANG_UNAVAILABLE
    return told is not None and known and o.now - told.last_transition_time >= GANG_PATIENCE


def taken_before(o: Observation) -> Observation:
    """The same, where the API server calls invalid what it took before: the platform has changed, as by a mutator.

    Such a refusal passes, and ends no job of which pods ever were.
    """
    if not o.refusal or not any(one.created_time for one in o.job.status.attempts):
        return o
    return replace(o, refusal="", hindrance=o.refusal)


def accept(o: Observation, draft: Draft) -> bool:
    """Fail a job that cannot work; others pass.

    True where a job that was accepted cannot be read: then nothing is touched; and while a gang system is waited for.
    """
    if draft.status.recovery.stage == RecoveryStage.STOPPING:
        return False
    if o.refusal:
        patched = o.job.spec is not None and o.job.spec.pod.patch is not None
        whose = ". What spec does not name itself comes from spec.pod.patch" if patched else ""
        message = f"the API server refuses what the job asks for: {o.refusal[:2000]}{whose}"
        fail(o, draft, Reason.INVALID_MANIFEST, message)
        return False
    if draft.status.attempt:
        # It was accepted once: an edit, or an operator of another release, must not end what trains.
        return o.job.spec is None
    if o.job.spec is None:
        fail(o, draft, Reason.INVALID_SPEC, f"the job does not fit this operator's API: {o.job.problem}")
    elif message := schedulers.other_queue(o.job, o.job.spec.scheduling):
        fail(o, draft, Reason.QUEUE_MISMATCH, message)
    elif (message := schedulers.unavailable(o.job.spec.scheduling, o.systems)) and not _is_suspended(o, draft):
        if not _is_missed_for_long(o, draft):
            draft.set(reason=Reason.GANG_UNAVAILABLE, message=message)
            draft.again(LOOK_AGAIN_SECONDS)
            return True
        fail(o, draft, Reason.GANG_UNAVAILABLE, message)
    elif o.service is not None and not o.service.ours and not o.service.leaving:
        fail(
            o,
            draft,
            Reason.NAME_TAKEN,
            f"a Service named {o.job.name} is there already and belongs to somebody else: delete it, or give the job "
            "another name.",
        )
    return False
