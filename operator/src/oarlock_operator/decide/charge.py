"""Charge: what one more start costs, of a gang or of its ranks in living pods, and whether there may be one.

A round and a lost pod are charged exactly as an attempt: to the budget of whose fault it was, and as a start without progress
where none was made.
"""

from __future__ import annotations

from oarlock_api.contract.exit_codes import FailureClass
from oarlock_api.history import RestartCounts
from oarlock_operator.decide.budgets import MOST_EVICTIONS, charged, exhausted, renewed
from oarlock_operator.decide.draft import Draft
from oarlock_operator.decide.finish import fail
from oarlock_operator.decide.made_progress import Furthest, of_lost_pod
from oarlock_operator.faults.classify import Budget, Fault
from oarlock_operator.model.observation import Observation
from oarlock_operator.model.reasons import Reason

_WORKED_IN_VAIN = {FailureClass.APPLICATION, FailureClass.HANG, FailureClass.GPU, FailureClass.PEER_LOST}
"""Endings of ranks that worked. Storage, preflight, lost nodes and evictions say nothing of the program's progress."""
_EXHAUSTED = {
    Budget.APPLICATION: Reason.APPLICATION_RESTARTS_EXHAUSTED,
    Budget.INFRASTRUCTURE: Reason.INFRASTRUCTURE_RESTARTS_EXHAUSTED,
}


def charge(
    o: Observation, draft: Draft, cause: Fault, *, furthest: Furthest, worked: bool, asked_to_go: bool
) -> RestartCounts | None:
    """The counts with one more start after `cause`. None where there is to be none: that the job ends is written down.

    `furthest`: by that start's end; `worked`: the ranks had been started; `asked_to_go`: somebody took a pod away.
    """
    if cause.budget is Budget.NONE:
        fail(o, draft, cause.reason, cause.message)
        return None
    counts = renewed(draft.status.restarts, o.spec.recovery, now=o.now, progressed=furthest.new)
    counts = counts.model_copy(update={"progress_step": furthest.step})
    if not furthest.new:
        counted = _counted_in_vain(o, draft, cause, counts, worked=worked, asked_to_go=asked_to_go)
        if counted is None:
            return None
        counts = counted
    if why := exhausted(counts, cause.budget, o.spec.recovery):
        fail(o, draft, _EXHAUSTED[cause.budget], f"{why}. The last fault: {cause.message}")
        return None
    return charged(counts, cause.budget, now=o.now)


def _counted_in_vain(
    o: Observation, draft: Draft, cause: Fault, counts: RestartCounts, *, worked: bool, asked_to_go: bool
) -> RestartCounts | None:
    """The counts after a start that made no progress; None where there were too many, and the job is to end.

    Every ending that costs no budget is counted here, so that none can be repeated for ever.
    """
    if cause.failure_class is FailureClass.REQUESTED and asked_to_go:
        count, most, message = counts.evictions, MOST_EVICTIONS, "evictions without a newer checkpoint"
        update = {"evictions": count + 1}
    elif cause.held:
        # It works, and saves as it leaves: what for, the budget of the infrastructure and its backoff bound.
        return counts
    elif cause.budget is Budget.VOLUNTARY or (cause.failure_class in _WORKED_IN_VAIN and worked):
        count, most = counts.without_progress, o.spec.recovery.max_restarts_without_progress
        starts = "attempts and rounds" if draft.status.rounds else "attempts"
        message = f"{starts} in a row made no progress"
        update = {"without_progress": count + 1}
    else:
        return counts
    if count >= most:
        fail(o, draft, Reason.NO_PROGRESS, f"{count + 1} {message}. The last fault: {cause.message}")
        return None
    return counts.model_copy(update=update)


def failed_before(o: Observation, draft: Draft) -> bool:
    """Whether the program has cost a restart before that still counts: what it fails by now is followed by a wait."""
    counts = renewed(draft.status.restarts, o.spec.recovery, now=o.now, progressed=of_lost_pod(o, draft).new)
    return counts.application > 0
