"""Surge: the next pod of one that was asked to go is made while that one still trains, where another node has room.

So the gang stands still for a round's start alone: scheduling, pulling and importing are over by then. Its leader is told
with each question for /status, and holds the round until the new pod is ready, or half of the old one's grace is over: the
other half is for the save.

Intent first, as in `replace`. Until the old pod has left, the new one is no member of the attempt, and whatever becomes of it
is nobody's fault; then `replace` finds it made already. One that is lost before, or was never made, is not made again.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from oarlock_api.contract.rounds import MAX_LOST
from oarlock_api.history import Surging
from oarlock_operator import schedulers
from oarlock_operator.decide import asked_to_go, making, new_pods, room
from oarlock_operator.decide.draft import Draft
from oarlock_operator.model.observation import Observation, Pod
from oarlock_operator.model.reasons import Reason

LEAST = timedelta(seconds=4)
"""A pod that may train on for less is not waited for: the next one starts and imports for longer."""


def surge(o: Observation, draft: Draft) -> None:
    """Make the next pods of those that were asked to go since the last pass, and see to the ones that are made."""
    _look_after(o, draft)
    known, pods = draft.status.recovery.surging, o.members(draft.status.attempt)
    if not schedulers.may_surge(o.spec, draft.status.resolved) or draft.status.recovery.stage is not None:
        return
    asked = [pod for pod in pods if pod.rank not in {one.rank for one in known} and _may_train_on(o, pod)]
    if not asked or len(asked) + len(known) > MAX_LOST or not _go_on(o, draft, pods):
        return
    if not room.is_elsewhere(o, draft, asked):
        return
    first = new_pods.numbers(o, draft, len(asked))
    new = tuple(
        Surging(rank=pod.rank, incarnation=first + index, hold_until_time=_hold_until(o, pod), round=_round(o, draft))
        for index, pod in enumerate(asked)
    )
    draft.set(recovery=draft.status.recovery.model_copy(update={"surging": (*known, *new)}))
    wanted = [making.Wanted(rank=one.rank, incarnation=one.incarnation, surge=True) for one in new]
    draft.act(making.pods(o, draft, making.maker(o, draft), wanted, optional=True))
    names = ", ".join(f"{pod.name} on {pod.node}" for pod in asked)
    draft.tell(Reason.SURGE_POD, f"{names} was asked to go, and trains on while its next pod makes itself ready")
    draft.again(0)


def made(o: Observation, draft: Draft, rank: int) -> Surging | None:
    """The next pod of this rank, if it is there already and lives."""
    number = draft.status.attempt
    one = next((one for one in draft.status.recovery.surging if one.rank == rank), None)
    lives = one and any(
        (pod.attempt, pod.rank, pod.incarnation) == (number, rank, one.incarnation)
        and not (pod.stopped or pod.deleting)
        for pod in o.pods
    )
    return one if lives else None


def _look_after(o: Observation, draft: Draft) -> None:
    """Hold the round no longer for new pods that are not there, or lost."""
    recovery = draft.status.recovery
    surging = tuple(
        one
        if made(o, draft, one.rank) or one.hold_until_time <= o.now
        else one.model_copy(update={"hold_until_time": o.now})
        for one in recovery.surging
    )
    if surging != recovery.surging:
        draft.set(recovery=recovery.model_copy(update={"surging": surging}))


def _may_train_on(o: Observation, pod: Pod) -> bool:
    """Whether that pod was asked to go, alone, and has time. Rank 0's next one is found by the name of the one before."""
    asked = pod.rank != 0 and o.asked_to_go(pod) and not pod.stopped and pod.started
    return asked and asked_to_go.goes_alone(pod) and _hold_until(o, pod) - o.now >= LEAST


def _go_on(o: Observation, draft: Draft, pods: tuple[Pod, ...]) -> bool:
    """Whether rank 0's pod and all others work, and a pod that is made now is made from the same as they were."""
    work = all(pod.started and not pod.stopped for pod in pods)
    leads = any(pod.rank == 0 and not pod.deleting for pod in pods)
    return work and leads and len(pods) == o.spec.nodes and making.fit(o, draft, pods)


def _hold_until(o: Observation, pod: Pod) -> datetime:
    return o.now + ((pod.delete_by or o.now) - o.now) / 2


def _round(o: Observation, draft: Draft) -> int:
    return max(draft.status.round, o.progress.round if o.progress else 1)
