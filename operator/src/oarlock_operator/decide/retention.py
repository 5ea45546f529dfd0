"""Retention: a finished job, its pods and their logs go after ttlSecondsAfterFinished; without it they stay."""

from __future__ import annotations

from datetime import timedelta

from oarlock_operator.decide.draft import Draft
from oarlock_operator.model.observation import Observation
from oarlock_operator.model.plan import DeleteJob


def retire(o: Observation, draft: Draft) -> bool:
    """Delete a finished job whose time is over: all that may happen to a finished job."""
    seconds = o.job.spec.ttl_seconds_after_finished if o.job.spec else None
    ended = draft.status.completion_time
    if seconds is None or ended is None:
        return False
    end = ended + timedelta(seconds=seconds)
    if o.now >= end:
        draft.act(DeleteJob(o.job.name, o.job.uid))
    else:
        draft.again((end - o.now).total_seconds())
    return True
