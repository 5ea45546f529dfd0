"""Drain: pods of other attempts stop before anything new starts, so that two gangs never live at once.

Those that still run are deleted first. Those that ended already hold the evidence, and are deleted after the blame is
written. A pod that does not stop within its grace and teardownSeconds is given up: the fence on the output makes that safe.
"""

from __future__ import annotations

from datetime import timedelta

from oarlock_api.contract.exit_codes import FailureClass
from oarlock_api.history import RecoveryStage
from oarlock_operator.decide import attempt, avoid
from oarlock_operator.decide.draft import Draft, milliseconds_since
from oarlock_operator.decide.final_status import note_saved
from oarlock_operator.decide.finish import fail
from oarlock_operator.decide.recover import SOUGHT, judge
from oarlock_operator.decide.teardown import delete, overdue
from oarlock_operator.faults.attribution import attribute
from oarlock_operator.faults.classify import Budget, classify
from oarlock_operator.model.observation import Observation
from oarlock_operator.model.reasons import VOLUNTARY, Reason

LOOK_AGAIN_SECONDS = 1.0


def drain(o: Observation, draft: Draft) -> bool:
    """Stop the pods of other attempts; True while one of them still runs."""
    number = draft.status.attempt
    others = o.of_other_attempts(number)
    unstopped = [pod for pod in others if not pod.stopped]
    # A kubelet that nobody hears from stops nothing: the fence keeps its pods from the output.
    running = [pod for pod in unstopped if not o.unreachable(pod)]
    draining = draft.status.recovery.stage == RecoveryStage.DRAIN.value
    # Counted from the intent: a pod that was given up once does not hold the new gang's later stages either.
    since = draft.attempt(number).start_time or o.now
    recovery = o.spec.recovery
    # Who leaves because somebody asked, or a GPU only warns, saves first, and takes the time that the job gives for it.
    asked = draft.attempt(number).reason in VOLUNTARY | {Reason.GPU_WARNING}
    grace = None if asked else recovery.fault_grace_period_seconds
    seconds = o.spec.pod.termination_grace_period_seconds if grace is None else grace
    bound = timedelta(seconds=seconds + recovery.teardown_seconds)
    # A lost pod's next one that is not up yet has nothing to save, and may miss a SIGTERM: as PID 1 it has none that ends it
    # by default.
    new = {pod.name for pod in unstopped if pod.incarnation > 1 and not (pod.ready or pod.deleting)}
    delete(draft, [pod for pod in unstopped if pod.name in new], grace_seconds=recovery.fault_grace_period_seconds)
    delete(draft, [pod for pod in unstopped if pod.name not in new], grace_seconds=grace)
    if running:
        # Who was told only now, because an operator was away, has its time as well.
        told = not draining or all(overdue(o, pod) for pod in running)
        if o.now - since < bound or not told:
            draft.again(LOOK_AGAIN_SECONDS)
            return True
        if draining:
            names = ", ".join(pod.name for pod in running)
            message = f"{names} did not stop within {bound.total_seconds():.0f} s; going on without"
            draft.tell(Reason.POD_NOT_STOPPING, message, warning=True)
            for pod in running:
                why = f"PodNotStopping in attempt {pod.attempt}"
                avoid.avoid(o, draft, pod.node, why=why, strict=True)
    if draining:
        _close(o, draft, draft.before(number).number)
        if draft.status.recovery.stage == RecoveryStage.STOPPING:
            draft.again(0)
            return True
        draft.measure(number, "drain", milliseconds_since(since, o.now))
        draft.stage(RecoveryStage.SCHEDULE.value, o.now)
    ended = [pod for pod in others if pod.stopped]
    # What runs on beside a trainer that has ended has nothing to save, and the next gang wants its GPUs.
    delete(draft, [pod for pod in ended if pod.still_running], grace_seconds=recovery.fault_grace_period_seconds)
    delete(draft, [pod for pod in ended if not pod.still_running], grace_seconds=None)
    return False


def _close(o: Observation, draft: Draft, number: int) -> None:
    """Write the end of the attempt before, with the blame from all that its pods said until they stopped."""
    attempt.end(o, draft, number)
    # Whoever saved when it was told to go says so only now.
    note_saved(o, draft, number)
    # How a pod ends that was told to go says nothing, unless it had a verdict of its own, or its node is lost.
    pods = [pod for pod in o.of_attempt(number) if not pod.deleting or pod.report or o.on_lost_node(pod)]
    faults = [fault for pod in pods if (fault := classify(pod, node_lost=o.on_lost_node(pod))) is not None]
    faults = [fault for fault in faults if fault.failure_class != FailureClass.REQUESTED]
    if not faults or attribute(faults).cause.victim:
        draft.set(message=(draft.status.message or "").removesuffix(SOUGHT) or None)
        return
    cause = judge(o, draft, number, faults, heard=True).cause
    if cause.budget is Budget.NONE and cause.failure_class != FailureClass.FENCED:
        fail(o, draft, cause.reason, cause.message)
        return
    following = draft.status.attempt
    if draft.attempt(following).reason == Reason.PEER_LOST:
        # The victims spoke up sooner than what they had lost: a node that is cut off is missed only later.
        draft.record(number, end_reason=cause.reason)
        draft.record(following, reason=cause.reason)
        draft.set(reason=cause.reason, message=cause.message)
        draft.tell(cause.reason, f"{cause.message}. That is what attempt {number} ended for.", warning=True)
