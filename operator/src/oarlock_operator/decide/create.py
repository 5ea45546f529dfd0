"""Create: the Service points at the current attempt, its group stands, and its missing pods are made.

Until createdTime is written, a missing pod is one that is not made yet; from then on it is a fault. So it is
beside a pod that has ended well: that one had met all others, and a new one would wait for it for ever.
"""

from __future__ import annotations

from datetime import timedelta

from oarlock_api.contract.names import service_name
from oarlock_api.history import RecoveryStage
from oarlock_operator import schedulers
from oarlock_operator.decide import attempt, making, queue
from oarlock_operator.decide.draft import Draft
from oarlock_operator.manifests.service import needs_service, selector, service
from oarlock_operator.model.observation import Observation, absent, gang_size
from oarlock_operator.model.plan import CreateGroup, CreateService, SelectAttempt
from oarlock_operator.model.reasons import Reason

LOOK_AGAIN_SECONDS = 2.0


def create(o: Observation, draft: Draft) -> bool:
    """Make what the current attempt lacks; True while its pods are not all seen."""
    if draft.status.attempt == 0:
        _begin(o, draft)
    number = draft.status.attempt
    not_before = draft.status.recovery.not_before_time
    longest = timedelta(seconds=o.spec.recovery.max_backoff_seconds)
    # Whoever is to wait for longer was told so by a clock that was ahead.
    if not_before is not None and timedelta() < not_before - o.now <= longest:
        draft.again((not_before - o.now).total_seconds())
        return True
    if not_before is not None and (draft.status.recovery.stage_start_time or o.now) < not_before <= o.now:
        # Waiting on purpose is no time of the scheduler's.
        draft.stage(draft.status.recovery.stage, not_before)
    record = draft.attempt(number)
    if record.created_time is not None:
        return False
    size = gang_size(o.spec, draft.status, number)
    missing = absent(size, o.pods, number)
    # A queue that counts all pods would hold the gang back for ever where one was not made.
    needed = size if schedulers.system_of(draft.status.resolved).counts_spares else o.spec.nodes
    spares = [rank for rank in missing if rank >= needed]
    missing = [rank for rank in missing if rank < needed]
    if not missing or any(pod.succeeded for pod in o.pods if pod.attempt == number):
        if spares and not missing:
            _make_spares(o, draft, spares)
        draft.record(number, created_time=o.now, gpu_seconds=0)
        if draft.status.reason == Reason.CREATE_REFUSED:
            draft.set(reason=record.reason or Reason.STARTING, message=None)
        if message := queue.ignored(o, draft):
            draft.tell(Reason.GANG_IGNORED, message, warning=True)
        return False
    # Some queues take no pods before they let the group in.
    queue.wait(o, draft)
    _make(o, draft, missing)
    held = draft.status.recovery.stage == RecoveryStage.QUEUE
    if o.hindrance and not held:
        _tell_refusal(o, draft)
    draft.again(LOOK_AGAIN_SECONDS)
    return True


def _tell_refusal(o: Observation, draft: Draft) -> None:
    """Say in the status who does not take the pods; in an Event, once for each word of his."""
    message = f"the API server does not take the pods: {o.hindrance}"
    draft.set(reason=Reason.CREATE_REFUSED, message=message[:2048])
    if not any(o.hindrance[:2048] == known.message for known in draft.status.conditions):
        draft.tell(Reason.CREATE_REFUSED, message, warning=True)


def _make(o: Observation, draft: Draft, missing: list[int]) -> None:
    """Everything that the pods need comes before them."""
    number = draft.status.attempt
    if needs_service(o.spec) and o.service is None:
        draft.act(CreateService(service(o.job, number)))
    elif o.service is not None and o.service.attempt != number:
        draft.act(SelectAttempt(service_name(o.job.name), o.service.uid, selector(o.job, number)))
    made = making.maker(o, draft)
    if made.group:
        draft.act(CreateGroup(made.group))
    draft.act(making.pods(o, draft, made, [making.Wanted(rank=rank) for rank in missing]))


def _make_spares(o: Observation, draft: Draft, ranks: list[int]) -> None:
    """Once, and after all others: what a quota does not leave room for, the gang does without."""
    wanted = [making.Wanted(rank=rank) for rank in ranks]
    draft.act(making.pods(o, draft, making.maker(o, draft), wanted, optional=True))


def _begin(o: Observation, draft: Draft) -> None:
    number = attempt.begin(o, draft, reason=None, stage=RecoveryStage.SCHEDULE)
    draft.set(start_time=o.now, reason=Reason.STARTING, message=None)
    spares = gang_size(o.spec, draft.status, number) - o.spec.nodes
    beyond = f", and {spares} spare{'s' if spares > 1 else ''}" if spares else ""
    draft.tell(Reason.STARTING, f"attempt {number}: {o.spec.nodes} pods with {o.spec.gpus_per_node} GPUs each{beyond}")
