"""Deadlines: a job has its time, a placed gang has its time to come up, and a gang that finds no room gives way.

Half a gang trains nothing but holds its nodes, so one that is not wholly placed in time is taken back as a whole: two gangs
that each wait for the other's nodes would wait for ever. That costs no budget; the wait before the next try grows.
"""

from __future__ import annotations

from datetime import timedelta

from oarlock_api.history import RecoveryStage
from oarlock_operator.decide import attempt, image, queue
from oarlock_operator.decide.budgets import backoff_seconds, charged
from oarlock_operator.decide.draft import Draft
from oarlock_operator.decide.finish import fail, stop
from oarlock_operator.faults.classify import Budget
from oarlock_operator.faults.missing_program import missing_program, remedy
from oarlock_operator.model.observation import Observation
from oarlock_operator.model.reasons import Reason

HOPELESS_OBSTACLES = {"InvalidImageName"}
"""What the kubelet says of pods that no waiting can help."""


def deadlines(o: Observation, draft: Draft) -> bool:
    """End a job whose time is over, or take back a gang that finds no room."""
    if draft.status.attempt == 0 or draft.status.recovery.stage in (
        RecoveryStage.SUSPENDING,
        RecoveryStage.SUSPENDED,
    ):
        return False
    if why := _job_is_over(o, draft) or _start_is_over(o, draft):
        fail(o, draft, *why)
        return stop(o, draft)
    _give_way(o, draft)
    return False


def _job_is_over(o: Observation, draft: Draft) -> tuple[str, str] | None:
    seconds, start = o.spec.active_deadline_seconds, draft.status.start_time
    if seconds is None or start is None or draft.status.recovery.stage == RecoveryStage.QUEUE:
        return None
    end = start + timedelta(seconds=seconds + draft.status.inactive_seconds)
    if o.now >= end:
        return Reason.DEADLINE_EXCEEDED, f"activeDeadlineSeconds ({seconds}) are over"
    draft.again((end - o.now).total_seconds())
    return None


def _start_is_over(o: Observation, draft: Draft) -> tuple[str, str] | None:
    """Whether a placed gang has not come up in its time, or says that it never will."""
    number = draft.status.attempt
    pods = [pod for pod in o.members(number) if not pod.started and not pod.stopped]
    has_run = image.ran_before(draft, number) or image.runs_beside(o, number)
    for pod in pods:
        if pod.by_event:
            continue
        reason = pod.obstacle.partition(":")[0]
        if reason in HOPELESS_OBSTACLES:
            return reason, f"pod {pod.name} can never start: {pod.obstacle}. Mend spec.pod in a new job."
        # What an image has that ran elsewhere or before, a node may be without until its deadline.
        if not has_run and (program := missing_program(pod.obstacle)):
            why = f"pod {pod.name} can never start, its image has no program {program}"
            return (
                Reason.CONFIGURATION_ERROR,
                f"{why}: {remedy(program, initial=o.spec.custom is not None)}. {pod.obstacle}",
            )
    since = draft.status.recovery.stage_start_time
    if draft.status.recovery.stage != RecoveryStage.START or since is None or not pods:
        return None
    end = since + timedelta(seconds=o.spec.startup_deadline_seconds)
    if o.now < end:
        draft.again((end - o.now).total_seconds())
        return None
    words = sorted({pod.obstacle for pod in pods if pod.obstacle}) or ["the kubelet gives no reason"]
    names = ", ".join(pod.name for pod in pods[:8])
    return (
        Reason.STARTUP_DEADLINE_EXCEEDED,
        f"{names} did not start within startupDeadlineSeconds ({o.spec.startup_deadline_seconds}): {'; '.join(words)}",
    )


def _give_way(o: Observation, draft: Draft) -> None:
    since = draft.status.recovery.stage_start_time
    if draft.status.recovery.stage != RecoveryStage.SCHEDULE or since is None:
        return
    pods = o.members(draft.status.attempt)
    made = draft.attempt(draft.status.attempt).created_time
    if (made is None and not o.hindrance) or queue.held(o, draft):
        return
    # Neither waiting on purpose is time of the scheduler's, nor that of an operator that died before it had made the pods.
    since = max(since, draft.status.recovery.not_before_time or since, made or since)
    end = since + timedelta(seconds=o.spec.scheduling.placement_timeout_seconds)
    if o.now < end:
        draft.again((end - o.now).total_seconds())
        return
    if not o.hindrance and all(pod.scheduled or pod.stopped for pod in pods):
        return
    placed = sum(pod.scheduled for pod in pods)
    why = o.hindrance or "; ".join(sorted({pod.obstacle for pod in pods if pod.obstacle})) or "no reason is given"
    counts = charged(draft.status.restarts, Budget.VOLUNTARY, now=o.now)
    # At least one step of backoff: who takes the same nodes at once gives nobody way.
    delay = backoff_seconds(counts.voluntary + 1, o.spec.recovery, uid=o.job.uid, attempt=draft.status.attempt)
    message = (
        f"{placed} of {o.spec.nodes} pods found a node within placementTimeoutSeconds "
        f"({o.spec.scheduling.placement_timeout_seconds}), so all of them give way; next try in {delay:.0f} s. {why}"
    )
    attempt.begin(
        o,
        draft,
        reason=Reason.PLACEMENT_TIMEOUT,
        stage=RecoveryStage.DRAIN,
        not_before=o.now + timedelta(seconds=delay),
    )
    draft.set(restarts=counts, reason=Reason.PLACEMENT_TIMEOUT, message=message[:2048])
    draft.tell(Reason.PLACEMENT_TIMEOUT, message, warning=True)
