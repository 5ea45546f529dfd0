"""Charge: what one more start costs, of a gang or of its ranks in living pods, and whether there may be one.

A round is charged exactly as an attempt: to the budget of whose fault it was, and as one without progress where it made no
newer checkpoint.
"""

from __future__ import annotations

from datetime import datetime

from oarlock_api.contract.exit_codes import FailureClass
from oarlock_api.history import RestartCounts, Round
from oarlock_operator.decide.budgets import MOST_EVICTIONS, UNTOLD_SECONDS, charged, exhausted, ran_seconds, renewed
from oarlock_operator.decide.draft import Draft
from oarlock_operator.decide.finish import fail
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
    o: Observation, draft: Draft, cause: Fault, *, progressed: bool, worked: bool, asked_to_go: bool
) -> RestartCounts | None:
    """The counts with one more start after `cause`. None where there is to be none: that the job ends is written down.

    `progressed`: a newer checkpoint was made; `worked`: the ranks had been started; `asked_to_go`: somebody took a pod away.
    """
    if cause.budget is Budget.NONE:
        fail(o, draft, cause.reason, cause.message)
        return None
    counts = renewed(draft.status.restarts, o.spec.recovery, now=o.now, progressed=progressed)
    if not progressed:
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
    """The counts after a start that made no newer checkpoint; None where there were too many, and the job is to end.

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
        message = f"{starts} in a row made no newer checkpoint"
        update = {"without_progress": count + 1}
    else:
        return counts
    if count >= most:
        fail(o, draft, Reason.NO_PROGRESS, f"{count + 1} {message}. The last fault: {cause.message}")
        return None
    return counts.model_copy(update=update)


def last_round(draft: Draft, *, before: int | None = None) -> Round | None:
    """The newest round of the current attempt that is booked, or the one `before` a round; None for none."""
    own = [one for one in draft.status.rounds if one.attempt == draft.status.attempt]
    return max((one for one in own if before is None or one.round < before), key=lambda one: one.round, default=None)


def began_with(o: Observation, draft: Draft, *, number: int | None = None) -> int | None:
    """The step that the current round, or round `number` of the attempt, began with, as far as it is known."""
    before = last_round(draft, before=number)
    step = before.resumed_from_step if before else draft.attempt(draft.status.attempt).resumed_from_step
    if step is None and o.job.status.latest_checkpoint is not None:
        # It was never heard of, as where pods refuse the operator's key: what was known before it is what it began with.
        step = o.job.status.latest_checkpoint.step
    return step


def ran_since_its_start(draft: Draft, *, until: datetime, number: int | None = None) -> float:
    """Seconds for which the current round, or round `number`, has run; its ranks' start after another one's end counts."""
    before = last_round(draft, before=number)
    if before is None or before.ended_time is None:
        return ran_seconds(draft.attempt(draft.status.attempt), now=until)
    return max(0.0, (until - before.ended_time).total_seconds())


def progressed(o: Observation, draft: Draft) -> bool:
    """Whether this attempt made a valid checkpoint newer than the one that it, or its last round, began with.

    Of a trainer of the job's own it may not be known: one that ran for long has made some.
    """
    if o.spec.custom and ran_since_its_start(draft, until=o.now) >= UNTOLD_SECONDS:
        return True
    pods = o.of_attempt(draft.status.attempt)
    saved = [pod.report.checkpoint_step for pod in pods if pod.report and pod.report.checkpoint_step is not None]
    if draft.status.latest_checkpoint is not None:
        saved.append(draft.status.latest_checkpoint.step)
    start = began_with(o, draft)
    return start is not None and max(saved, default=-1) > start


def failed_before(o: Observation, draft: Draft) -> bool:
    """Whether the program has cost a restart before that still counts: what it fails by now is followed by a wait."""
    done = draft.status.recovery.stage is None and progressed(o, draft)
    return renewed(draft.status.restarts, o.spec.recovery, now=o.now, progressed=done).application > 0
