"""Claim: before the first pod of an attempt is made, the output and the names are this job's alone.

A job that was deleted and made anew under the same name is the common case: its predecessor's Service and pods are on
their way out, and are waited for. The pods are then told that the output's previous owner is gone.
"""

from __future__ import annotations

from oarlock_operator.decide.draft import Draft, milliseconds_since
from oarlock_operator.decide.finish import fail, stop
from oarlock_operator.model.observation import Observation
from oarlock_operator.model.reasons import Reason

MOST_NAMED = 8
LOOK_AGAIN_SECONDS, LONGEST_SECONDS = 0.5, 10.0
SHARE = 0.1
"""What is left of a deleted job goes in a moment, or, on a lost node, never: who has waited for long looks less often."""


def claim(o: Observation, draft: Draft) -> bool:
    """End a job whose output is another's; True while it is not clear, or a predecessor is still on its way out."""
    if draft.attempt(draft.status.attempt).created_time is not None:
        return False
    if not o.looked_around:
        # The attempt was decided in this very pass: look around before anything is made for it.
        draft.again(0)
        return True
    if o.rival:
        where = o.spec.output.directory or o.job.name
        fail(
            o,
            draft,
            Reason.OUTPUT_IN_USE,
            f"the job {o.rival} writes to the same directory {where} of the same storage and has not finished: give this "
            "job another output.directory, or delete the other one.",
        )
        return stop(o, draft)
    leaving = [f"pod {name}" for name in o.lingering]
    if o.service is not None and o.service.leaving:
        leaving.append(f"Service {o.job.name}")
    if leaving:
        message = f"waiting for what a deleted job leaves behind: {', '.join(leaving)[:1000]}"
        if o.service is not None and o.service.leaving:
            message += ". Kubernetes' garbage collector takes it; if that does not happen within minutes, delete it"
        if o.orphans:
            pods = " ".join(o.orphans[:MOST_NAMED])
            message += (
                f". Nobody deletes {pods}, for they have no owner any more (`kubectl delete --cascade=orphan`, or a backup "
                f"that was restored). If they are not wanted: kubectl -n {o.job.namespace} delete pod {pods}"
            )
        draft.set(reason=Reason.WAITING_FOR_PREDECESSOR, message=message)
        # A first attempt is not begun yet: the conditions know since when the job is.
        since = draft.status.recovery.stage_start_time or min(
            (known.last_transition_time for known in draft.status.conditions), default=o.now
        )
        waited = milliseconds_since(since, o.now) / 1000
        draft.again(min(max(LOOK_AGAIN_SECONDS, SHARE * waited), LONGEST_SECONDS))
        return True
    return False
