"""Accept a job, or end it with words that mend it: what neither the schema nor CEL could see."""

from __future__ import annotations

from oarlock_api.history import RecoveryStage
from oarlock_operator import schedulers
from oarlock_operator.decide.draft import Draft
from oarlock_operator.decide.finish import fail
from oarlock_operator.observation import Observation
from oarlock_operator.reasons import Reason


def _is_suspended(o: Observation, draft: Draft) -> bool:
    """Its gang is chosen when it is resumed, and until then its system may come and go."""
    wanted = o.job.spec is not None and o.job.spec.suspend
    return wanted or draft.status.recovery.stage == RecoveryStage.SUSPENDED


def accept(o: Observation, draft: Draft) -> bool:
    """Fail a job that cannot work; others pass. True where a running job cannot be read: then nothing is touched."""
    if draft.status.recovery.stage == RecoveryStage.STOPPING:
        return False
    if o.refusal:
        fail(o, draft, Reason.INVALID_MANIFEST, f"the API server refuses what the job asks for: {o.refusal[:2000]}")
        return False
    if draft.status.attempt:
        # It was accepted once: an edit, or an operator of another release, must not end what trains.
        return o.job.spec is None
    if o.job.spec is None:
        fail(o, draft, Reason.INVALID_SPEC, f"the job does not fit this operator's API: {o.job.problem}")
    elif words := schedulers.other_queue(o.job, o.job.spec.scheduling):
        fail(o, draft, Reason.QUEUE_MISMATCH, words)
    elif (words := schedulers.unavailable(o.job.spec.scheduling, o.systems)) and not _is_suspended(o, draft):
        fail(o, draft, Reason.GANG_UNAVAILABLE, words)
    elif o.service is not None and not o.service.ours and not o.service.leaving:
        fail(
            o,
            draft,
            Reason.NAME_TAKEN,
            f"a Service named {o.job.name} is there already and belongs to somebody else: delete it, or give the job "
            "another name.",
        )
    return False
