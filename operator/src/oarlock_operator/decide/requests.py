"""Requests: what a person asks of a job's gang, by an annotation; and how long a save takes whose pod is to go.

What is asked is written into status.request first; every question for rank 0's status then carries it, until that pod says
what came of it (docs/decisions/0050). An id that stands in the status is never taken again, so nothing runs twice. One is
served at a time; stacks alone take the place of a save or drill: where that hangs, they say why.
"""

from __future__ import annotations

from datetime import timedelta

from oarlock_api.contract.requests import MAX_ID, Request, RequestState, Verb, parse_annotation
from oarlock_api.history import RecoveryStage
from oarlock_api.requests import EvictionReadiness, MeasuredBy, RequestStatus
from oarlock_api.training import Task
from oarlock_operator.decide.draft import Draft
from oarlock_operator.model.observation import Observation
from oarlock_operator.model.reasons import Reason

LOOK_AGAIN_SECONDS = 1.0
"""Between looks at a gang that was asked."""
UNHEARD_SECONDS = 30.0
"""After so long, a rank 0 that answers and never names a request takes none. One that names another is busy with that.

Counted from this process's first answer to a question that carried the request: before that, nobody had heard of it.
"""
GRACE_TOO_SHORT = "a save took "
LONGEST = timedelta(minutes=30)
"""For a request: a checkpoint of 143 GB takes minutes, and pictures that are being made are waited for."""


def requests(o: Observation, draft: Draft) -> None:
    """Take a new request, or see what became of the one that is under way; and note what was measured."""
    _note_measured(o, draft)
    known = draft.status.request
    if known is not None and known.state == RequestState.ASKED:
        _follow(o, draft, known)
    elif o.job.request and _id(o.job.request) != (known.id if known else None):
        _take(o, draft)


def _id(annotation: str) -> str:
    """What tells a request from others; of one that cannot be read, its beginning."""
    request = parse_annotation(annotation)
    return request.id if request else annotation[:MAX_ID]


def _take(o: Observation, draft: Draft) -> None:
    request = parse_annotation(o.job.request)
    asked = RequestStatus(
        id=_id(o.job.request),
        verb=request.verb.value if request else None,
        state=RequestState.ASKED.value,
        attempt=draft.status.attempt,
        request_time=o.now,
    )
    if why := _refusal(o, draft, request):
        _end(o, draft, asked, RequestState.REFUSED, message=why)
        return
    draft.set(request=asked)
    draft.again(0)


def _refusal(o: Observation, draft: Draft, request: Request | None) -> str:
    """Why it cannot be served; empty where it can."""
    status = draft.status
    if request is None:
        return (
            f"the annotation is to be `VERB ID`: one of {', '.join(Verb)}, and up to {MAX_ID} letters, digits, . _ or -"
        )
    if o.job.deleting or status.completion_time is not None:
        return "the job has ended"
    return _refusal_of_stacks(o, draft) if request.verb is Verb.STACKS else _refusal_of_a_save(o, draft)


def _refusal_of_a_save(o: Observation, draft: Draft) -> str:
    status = draft.status
    if o.job.spec is None or o.job.spec.training is None:
        return "the job's own command cannot be asked to save; at an eviction it has SIGTERM and its grace"
    if o.job.spec.training.task is not Task.TRAIN:
        return f"the task {o.job.spec.training.task.value} makes no checkpoints"
    if status.recovery.stage is not None or not status.attempt:
        return f"it does not train at the moment ({status.phase}): ask again, with another id, once it does"
    return ""


def _refusal_of_stacks(o: Observation, draft: Draft) -> str:
    if o.job.spec is None or o.job.spec.training is None:
        return "the job's own command has no ranks that could be asked for stacks"
    return "" if _has_ranks(draft) else f"it has no ranks now ({draft.status.phase}): ask again, with another id"


def _follow(o: Observation, draft: Draft, known: RequestStatus) -> None:
    status = draft.status
    answered = o.progress.request if o.progress else None
    waited = o.now - (known.request_time or o.now)
    if answered and answered.id == known.id and answered.state in {RequestState.DONE, RequestState.FAILED}:
        state = RequestState(answered.state)
        known = known.model_copy(update={"step": answered.step, "seconds": answered.seconds})
        _end(o, draft, known, state, message=answered.message)
    elif o.job.deleting or status.completion_time is not None or known.attempt != status.attempt:
        _end(o, draft, known, RequestState.FAILED, message=f"attempt {known.attempt} ended before it could say more")
    elif status.recovery.stage == RecoveryStage.REPLACE and waited <= LONGEST:
        # The attempt goes on: rank 0's agent says that it ended with the ranks, or begins it with the next ones.
        draft.again(LOOK_AGAIN_SECONDS)
    elif known.verb == Verb.STACKS and not _has_ranks(draft):
        _end(o, draft, known, RequestState.FAILED, message=f"attempt {known.attempt} was told to go")
    elif known.verb != Verb.STACKS and status.recovery.stage is not None:
        _end(
            o, draft, known, RequestState.FAILED, message=f"attempt {known.attempt} was told to go: its pods save then"
        )
    elif o.request_seconds > UNHEARD_SECONDS and o.progress and answered is None:
        _end(
            o, draft, known, RequestState.REFUSED, message="the trainer's image is of an earlier release: it takes none"
        )
    elif known.verb != Verb.STACKS and (stacks := _other_stacks(o, known.id)) and not _refusal_of_stacks(o, draft):
        why = (
            f"stacks {stacks.id} were asked for meanwhile: what comes of it is not told, its checkpoint may still come"
        )
        _end(o, draft, known, RequestState.FAILED, message=why)
        _take(o, draft)
    elif waited > LONGEST:
        _end(o, draft, known, RequestState.FAILED, message=f"nothing was heard of it for {LONGEST}")
    else:
        draft.again(LOOK_AGAIN_SECONDS)


def _other_stacks(o: Observation, known: str) -> Request | None:
    """Stacks that are asked for by now, with another id."""
    request = parse_annotation(o.job.request)
    return request if request and request.verb is Verb.STACKS and request.id != known else None


def _has_ranks(draft: Draft) -> bool:
    """Whether a gang runs, though it may be stuck before its first step."""
    status = draft.status
    return status.attempt > 0 and status.recovery.stage in (None, RecoveryStage.START, RecoveryStage.FIRST_STEP)


def _end(o: Observation, draft: Draft, known: RequestStatus, state: RequestState, *, message: str = "") -> None:
    """Write down what became of a request, and tell of it."""
    draft.set(
        request=known.model_copy(update={"state": state.value, "end_time": o.now, "message": message[:1024] or None})
    )
    if state is RequestState.DONE and known.verb == Verb.STACKS:
        draft.tell(Reason.STACKS_TAKEN, f"stacks {known.id}: {message}")
    elif state is RequestState.DONE:
        seconds = "" if known.seconds is None else f" within {known.seconds:.1f} s"
        draft.tell(Reason.SAVED_ON_REQUEST, f"{known.verb} {known.id}: step {known.step} is saved{seconds}")
    else:
        draft.tell(Reason.REQUEST_NOT_SERVED, f"{known.verb or 'request'} {known.id}: {message}", warning=True)


def _note_measured(o: Observation, draft: Draft) -> None:
    """Take what a drill of rank 0 took, and what pods took that saved and left. Each is written down once."""
    known, number = draft.status.eviction_readiness, draft.status.attempt
    if o.job.spec is None or o.job.spec.training is None:
        return
    since = (known.attempt or 0) if known else 0
    of_eviction = known is not None and known.by == MeasuredBy.EVICTION
    left = [
        (pod.attempt, seconds, pod.report.checkpoint_step or pod.report.step)
        for pod in o.pods
        if pod.attempt >= since and pod.report and (seconds := pod.report.leaving_seconds) is not None
    ]
    if left:
        attempt, seconds, step = max(left, key=lambda one: one[:2])
        if attempt > since or not of_eviction or (known and round(seconds, 1) > known.seconds_needed):
            _write(o, draft, by=MeasuredBy.EVICTION, attempt=attempt, seconds=seconds, step=step)
            return
    drill = o.progress.drill if o.progress else None
    if (
        drill
        and (number > since or not of_eviction)
        and (known is None or (known.attempt, known.step) != (number, drill.step))
    ):
        _write(o, draft, by=MeasuredBy.DRILL, attempt=number, seconds=drill.seconds, step=drill.step)


def _write(o: Observation, draft: Draft, *, by: MeasuredBy, attempt: int, seconds: float, step: int | None) -> None:
    draft.set(
        eviction_readiness=EvictionReadiness(
            seconds_needed=round(seconds, 1),
            grace_seconds=o.spec.pod.termination_grace_period_seconds,
            measure_time=o.now,
            attempt=attempt,
            step=step,
            by=by.value,
        )
    )


def grace_too_short(draft: Draft) -> str:
    """What is to be told where a save takes longer than the pods are given; empty where it does not, or nobody knows."""
    known = draft.status.eviction_readiness
    if known is None or known.seconds_needed <= known.grace_seconds:
        return ""
    return (
        f"{GRACE_TOO_SHORT}{known.seconds_needed:.1f} s at the last {known.by.lower()}, and an evicted pod has "
        f"{known.grace_seconds} s: what came after the last checkpoint would be lost. Raise "
        f"spec.pod.terminationGracePeriodSeconds above {known.seconds_needed:.0f}"
    )
