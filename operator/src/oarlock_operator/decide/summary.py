"""The summary of a pass: phase, rank counts, columns and conditions follow from the rest and are never set elsewhere."""

from __future__ import annotations

from oarlock_api.contract.exit_codes import FailureClass
from oarlock_api.contract.status import PodPhase
from oarlock_api.history import RecoveryStage
from oarlock_api.status import Condition, ConditionStatus, ConditionType, Phase, Ranks, Summary
from oarlock_operator.decide.degraded import degraded
from oarlock_operator.decide.draft import Draft
from oarlock_operator.decide.storage import volume_trouble
from oarlock_operator.decide.teardown import not_stopping
from oarlock_operator.decide.unplaced import unplaced
from oarlock_operator.model.observation import Observation, Pod, standing_by
from oarlock_operator.model.reasons import STARTS, Reason

_REFUSALS = {
    Reason.INVALID_SPEC,
    Reason.INVALID_MANIFEST,
    Reason.NAME_TAKEN,
    Reason.GANG_UNAVAILABLE,
    Reason.QUEUE_MISMATCH,
}


_MOST_NAMED = 8
_READY = {Phase.RUNNING, Phase.SUCCEEDED}
_ON_ITS_WAY = {Phase.PENDING, Phase.QUEUED, Phase.STARTING, Phase.RECOVERING}


def summarize(o: Observation, draft: Draft) -> None:
    """Fill in what follows from the rest of the status and the pods."""
    status = draft.status
    pods = o.members(status.attempt) if status.attempt else ()
    needed = {pod.rank for pod in pods}
    idle = [pod for pod in o.of_attempt(status.attempt) if status.attempt and pod.rank not in needed]
    phase = _phase(o, draft)
    desired = o.job.spec.nodes if o.job.spec else 0
    ranks = Ranks(
        desired=desired,
        created=sum(not pod.gone for pod in pods),
        ready=sum(pod.ready and not pod.stopped for pod in pods),
        succeeded=sum(pod.succeeded for pod in pods),
        failed=sum(pod.ending is not None and not pod.succeeded for pod in pods),
        terminating=sum(pod.deleting and not pod.gone for pod in o.pods),
        spares=sum(pod.ready and not pod.stopped for pod in idle),
    )
    if status.progress and (status.recovery.stage is not None or phase == Phase.FAILED):
        # Nobody works on it at the moment: when it will be done cannot be told.
        halted = {"eta_seconds": None, "silent_seconds": None, "hang_after_seconds": None}
        draft.set(progress=status.progress.model_copy(update=halted))
    progress = draft.status.progress
    shown = ranks.succeeded if phase == Phase.SUCCEEDED else ranks.ready
    if status.recovery.stage not in (None, RecoveryStage.REPLACE) or status.completion_time is not None:
        draft.set(memory=None)  # its pods are gone, or go
    draft.set(
        phase=phase,
        observed_generation=o.job.generation,
        ranks=ranks,
        summary=Summary(
            nodes=f"{shown}/{desired}" + (f"+{ranks.spares}" if ranks.spares else ""),
            step=f"{progress.step}/{progress.total_steps}" if progress and progress.step is not None else None,
            eta=_duration(progress.eta_seconds) if progress and progress.eta_seconds is not None else None,
            last_fault=_fault_summary(draft),
        ),
    )
    wanted = _conditions(o, draft, pods)
    draft.set(conditions=_merged(o, draft, wanted))


def _phase(o: Observation, draft: Draft) -> str:
    status = draft.status
    stage = status.recovery.stage
    ending = stage in (RecoveryStage.STOPPING, RecoveryStage.SUSPENDING) and status.phase
    if status.completion_time is not None or ending:
        return status.phase or Phase.PENDING
    if stage == RecoveryStage.SUSPENDED:
        return Phase.SUSPENDED
    if status.attempt == 0:
        return Phase.PENDING
    if stage in (None, RecoveryStage.QUEUE):
        return Phase.QUEUED if stage else Phase.RUNNING
    if stage == RecoveryStage.REPLACE or draft.attempt(status.attempt).reason not in STARTS:
        return Phase.RECOVERING
    return Phase.RUNNING if stage == RecoveryStage.FIRST_STEP and _ranks_work(o, draft) else Phase.STARTING


def _ranks_work(o: Observation, draft: Draft) -> bool:
    """Whether the ranks of a gang that has made no step are past their start, as while they encode. Once told, it holds.

    A trainer of the job's own need not tell more than that it was started.
    """
    if draft.status.phase == Phase.RUNNING or o.progress is None:
        return draft.status.phase == Phase.RUNNING
    comes_up = {"", PodPhase.PREFLIGHT, PodPhase.STANDBY, *(() if o.spec.custom else (PodPhase.STARTING,))}
    return o.progress.phase not in comes_up


def _fault_summary(draft: Draft) -> str | None:
    fault = draft.status.last_fault
    if fault is None:
        return None
    where = fault.node_name or f"pod {fault.rank}"
    what = f"XID {fault.xid}" if fault.xid is not None else fault.reason or fault.fault_class
    gpu = f" GPU {fault.gpu.index}" if fault.gpu and fault.gpu.index is not None else ""
    return f"{where}{gpu} {what}"


def _duration(seconds: int) -> str:
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes}m" if hours else f"{minutes}m{rest}s" if minutes else f"{rest}s"


_Wanted = tuple[ConditionStatus, str, str]


def _is(holds: bool, reason: str, message: str = "") -> _Wanted:  # noqa: FBT001 - reads as the sentence that it is
    return (ConditionStatus.TRUE if holds else ConditionStatus.FALSE, reason, message)


def _conditions(o: Observation, draft: Draft, pods: tuple[Pod, ...]) -> dict[ConditionType, _Wanted]:
    status = draft.status
    phase, reason, message = status.phase or Phase.PENDING, status.reason or Reason.PENDING, status.message or ""
    ended = status.completion_time is not None
    refused = reason in _REFUSALS
    trouble, words = degraded(o, draft, o.of_attempt(status.attempt) if status.attempt else ())
    return {
        ConditionType.ACCEPTED: _is(not refused, reason if refused else Reason.ACCEPTED, message if refused else ""),
        ConditionType.SUSPENDED: _suspended(draft),
        ConditionType.STORAGE_READY: _storage(o, draft, pods),
        ConditionType.SCHEDULED: _scheduled(o, draft, pods),
        ConditionType.RUNNING: _running(phase, pods, not_stopping(o)),
        ConditionType.RECOVERING: _is(
            phase == Phase.RECOVERING, reason if phase == Phase.RECOVERING else phase, message
        ),
        ConditionType.DEGRADED: _is(trouble is not None, trouble or Reason.AS_EXPECTED, words),
        ConditionType.SUCCEEDED: _is(phase == Phase.SUCCEEDED, reason if ended else phase),
        ConditionType.FAILED: _is(
            phase == Phase.FAILED,
            reason if phase == Phase.FAILED else phase,
            message if phase == Phase.FAILED else "",
        ),
        ConditionType.FINISHED: _is(ended, reason if ended else phase),
        ConditionType.READY: _is(phase in _READY, reason if ended else phase, "" if phase in _READY else message),
        ConditionType.RECONCILING: _is(phase in _ON_ITS_WAY, phase, message if phase in _ON_ITS_WAY else ""),
        ConditionType.STALLED: _is(phase == Phase.FAILED, reason if phase == Phase.FAILED else phase),
    }


def _suspended(draft: Draft) -> _Wanted:
    stage = draft.status.recovery.stage
    word = stage if stage in (RecoveryStage.SUSPENDING, RecoveryStage.SUSPENDED) else Reason.NOT_SUSPENDED
    return _is(stage == RecoveryStage.SUSPENDED, word)


def _running(phase: str, pods: tuple[Pod, ...], stuck: list[Pod]) -> _Wanted:
    """While a placed pod does not start, the kubelet's words stand here. What only does not stop does not run."""
    if stuck and all(pod.stopped or pod in stuck for pod in pods):
        return _is(False, Reason.POD_NOT_STOPPING, ", ".join(f"{pod.name} on {pod.node}" for pod in stuck[:8]))  # noqa: FBT003
    waiting = [pod for pod in pods if pod.scheduled and not pod.started and not pod.stopped and pod.obstacle]
    if phase == Phase.RUNNING or not waiting:
        return _is(phase == Phase.RUNNING, phase)
    message = "; ".join(sorted({f"{pod.name}: {pod.obstacle}" for pod in waiting})[:8])
    return _is(False, waiting[0].obstacle.partition(":")[0] or Reason.WAITING, message[:2048])  # noqa: FBT003


def _storage(o: Observation, draft: Draft, pods: tuple[Pod, ...]) -> _Wanted:
    if message := volume_trouble(pods, o.hindrance):
        return _is(False, Reason.VOLUME_NOT_READY, message)  # noqa: FBT003
    fault = draft.status.last_fault
    stage = draft.status.recovery.stage
    if (
        fault
        and fault.fault_class in (FailureClass.STORAGE, FailureClass.FENCED)
        and (stage is not None or draft.status.completion_time is not None)
    ):
        reason = Reason.OUTPUT_IN_USE if fault.fault_class == FailureClass.FENCED else Reason.STORAGE_FAULT
        return _is(False, reason, fault.evidence[0] if fault.evidence else "")  # noqa: FBT003
    if draft.status.progress is not None or o.progress is not None:
        return _is(True, Reason.VERIFIED)  # noqa: FBT003
    return (ConditionStatus.UNKNOWN, Reason.NOT_CHECKED, "")


def _scheduled(o: Observation, draft: Draft, pods: tuple[Pod, ...]) -> _Wanted:
    if draft.status.recovery.stage == RecoveryStage.QUEUE:
        return _is(False, Reason.QUEUED, (draft.status.message or "")[:2048])  # noqa: FBT003
    if o.hindrance:
        return _is(False, Reason.CREATE_REFUSED, o.hindrance[:2048])  # noqa: FBT003
    if draft.status.attempt == 0 or not pods:
        return (ConditionStatus.UNKNOWN, Reason.NOT_CREATED, "")
    waiting = [pod for pod in pods if not pod.scheduled and not pod.stopped]
    if not waiting:
        return _is(True, Reason.ALL_PODS_PLACED, _idle_waits(o, draft))  # noqa: FBT003
    return _is(False, *(unplaced(draft, pods) or (Reason.SCHEDULING, "")))  # noqa: FBT003


def _idle_waits(o: Observation, draft: Draft) -> str:
    """Which pods have no node that the gang trains without; empty where all have one."""
    number = draft.status.attempt
    idle = [pod for pod in o.of_attempt(number) if pod.rank in standing_by(draft.status, number)]
    waiting = [pod for pod in idle if not (pod.scheduled or pod.stopped or pod.gone)]
    said = [f"{pod.name}{f': {pod.obstacle}' if pod.obstacle else ''}" for pod in waiting[:_MOST_NAMED]]
    more = f"; and {len(waiting) - _MOST_NAMED} more" if len(waiting) > _MOST_NAMED else ""
    return f"no node yet for pods that stand by: {'; '.join(said)}{more}"[:2048] if said else ""


def _merged(o: Observation, draft: Draft, wanted: dict[ConditionType, _Wanted]) -> tuple[Condition, ...]:
    """Conditions in a fixed order; the transition time moves only when the status does. Others' stay as they are."""
    known = {condition.type: condition for condition in draft.status.conditions}
    merged = []
    for kind, (status, reason, message) in wanted.items():
        before = known.get(kind.value)
        same = before is not None and before.status == status
        merged.append(
            Condition(
                type=kind.value,
                status=status,
                reason=reason,
                message=message,
                last_transition_time=before.last_transition_time if before is not None and same else o.now,
                observed_generation=o.job.generation,
            )
        )
    others = [condition for condition in draft.status.conditions if condition.type not in wanted]
    return (*merged, *others)
