"""Surge: the next pod of one that was asked to go is made while that one still trains, where another node has room.

So the gang stands still for a round's start alone: scheduling, pulling and importing are over by then. Its leader is told
with each question for /status, and holds the round until the new pod is ready, or half of the old one's grace is over: the
other half is for the save.

Intent first, as in `replace`. Until the old pod has left, the new one is no member of the attempt, and whatever becomes of it
is nobody's fault; then `replace` finds it made already. One that is lost before, or was never made, is not made again.

An agent of an earlier release would take the old pod's place at once. So surge pods are made once rank 0's has said that it
knows them.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from oarlock_api.contract.rounds import MAX_LOST
from oarlock_api.history import Surging
from oarlock_operator import schedulers
from oarlock_operator.decide import asked_to_go, making, new_pods, room
from oarlock_operator.decide.draft import Draft
from oarlock_operator.model.observation import Observation, Pod
from oarlock_operator.model.reasons import Reason

SAVE = 1.5
"""Of the time that the last save needed which was measured (status.evictionReadiness)."""
LEAST = timedelta(seconds=4)
"""A pod that may train on for less is not waited for: the next one starts and imports for longer."""


def surge(o: Observation, draft: Draft) -> None:
    """Make the next pods of those that were asked to go since the last pass, and see to the ones that are made."""
    _look_after(o, draft)
    asked = _asked(o, draft)
    if asked and room.is_elsewhere(o, draft, asked):
        _make_next(o, draft, asked)


def _asked(o: Observation, draft: Draft) -> list[Pod]:
    """The pods that were asked to go and have no next one yet; none where no next one may be made."""
    number, recovery = draft.status.attempt, draft.status.recovery
    if not schedulers.may_surge(o.spec, draft.status.resolved) or not _is_known(o, draft, number):
        return []
    known, pods = {one.rank for one in recovery.surging}, o.members(number)
    asked = [pod for pod in pods if pod.rank not in known and _may_train_on(o, draft, pod)]
    many = len(asked) + len(known) > MAX_LOST
    return asked if asked and recovery.stage is None and not many and _go_on(o, draft, pods) else []


def _make_next(o: Observation, draft: Draft, asked: Sequence[Pod]) -> None:
    first, recovery = new_pods.numbers(o, draft, len(asked)), draft.status.recovery
    reached = max(draft.status.round, o.progress.round if o.progress else 1)
    new = tuple(
        Surging(rank=pod.rank, incarnation=first + index, hold_until_time=_hold_until(o, draft, pod), round=reached)
        for index, pod in enumerate(asked)
    )
    draft.set(recovery=recovery.model_copy(update={"surging": (*recovery.surging, *new)}))
    wanted = [making.Wanted(rank=one.rank, incarnation=one.incarnation, surge=True) for one in new]
    draft.act(making.pods(o, draft, making.maker(o, draft), wanted, optional=True))
    names = ", ".join(f"{pod.name} on {pod.node}" for pod in asked)
    draft.tell(Reason.SURGE_POD, f"{names}: asked to go, and trains on while its next pod makes itself ready")
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


def _is_known(o: Observation, draft: Draft, number: int) -> bool:
    """Whether the attempt's agents know surge pods, as its rank 0 says; written down, as it is not asked when it matters."""
    known = draft.attempt(number).surges is True
    if not known and o.progress is not None and o.progress.attempt == number and o.progress.surges:
        draft.record(number, surges=True)
        return True
    return known


def _look_after(o: Observation, draft: Draft) -> None:
    """Hold the round no longer for new pods that are not there, or lost; nor for as long, where a pod's grace was cut."""
    recovery = draft.status.recovery
    old = {pod.rank: pod for pod in o.members(draft.status.attempt)}
    surging = []
    for one in recovery.surging:
        until = one.hold_until_time
        if not made(o, draft, one.rank):
            until = min(until, o.now)
        elif pod := old.get(one.rank):
            until = min(
                until, _hold_until(o, draft, pod)
            )  # later with each pass, so this is the first unless it was cut
        surging.append(one if until == one.hold_until_time else one.model_copy(update={"hold_until_time": until}))
    if tuple(surging) != recovery.surging:
        draft.set(recovery=recovery.model_copy(update={"surging": tuple(surging)}))


def _may_train_on(o: Observation, draft: Draft, pod: Pod) -> bool:
    """Whether that pod was asked to go, alone, and has time. Rank 0's next one is found by the name of the one before."""
    asked = pod.rank != 0 and o.asked_to_go(pod) and not pod.stopped and pod.started
    return asked and asked_to_go.goes_alone(pod) and _hold_until(o, draft, pod) - o.now >= LEAST


def _go_on(o: Observation, draft: Draft, pods: tuple[Pod, ...]) -> bool:
    """Whether rank 0's pod and all others work, and a pod that is made now is made from the same as they were."""
    work = all(pod.started and not pod.stopped for pod in pods)
    leads = any(pod.rank == 0 and not pod.deleting for pod in pods)
    return work and leads and len(pods) == o.spec.nodes and making.fit(o, draft, pods)


def _hold_until(o: Observation, draft: Draft, pod: Pod) -> datetime:
    """Half of what its grace has left; less where the other half would be too little for a save as the last one was."""
    by, known = pod.delete_by or o.now, draft.status.eviction_readiness
    needed = timedelta(seconds=SAVE * known.seconds_needed) if known else timedelta()
    return max(o.now, min(o.now + (by - o.now) / 2, by - needed))
