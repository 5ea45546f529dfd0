"""New pods: what follows from the intent to make pods anew, in the same pass or in any later one.

Old pods are deleted. A new one is made once the old one has stopped, or nobody can stop it; at once where rank 0's agent has
lost the old one and another node has room: that agent waits until nothing of it can run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import timedelta

from oarlock_api.contract.names import service_name
from oarlock_api.contract.node_affinity import kept_off
from oarlock_api.contract.rounds import MAX_LOST
from oarlock_api.history import Replacing
from oarlock_operator.decide import avoid, making, room
from oarlock_operator.decide.draft import Draft
from oarlock_operator.decide.teardown import delete
from oarlock_operator.manifests.pod import pod as pod_manifest
from oarlock_operator.manifests.service import names_all, selector
from oarlock_operator.model.observation import Observation, Pod, standing_by
from oarlock_operator.model.plan import SelectAttempt
from oarlock_operator.model.reasons import Reason

LOOK_AGAIN_SECONDS = 1.0
AGAIN = timedelta(seconds=60)
"""Until one that nobody waits for is asked for again."""

DIFFERS = "would be made from something else than the others, as the job or the operator has changed since"


def numbers(o: Observation, draft: Draft, count: int) -> int:
    """The first of so many numbers that no pod of the attempt has had."""
    number = draft.status.attempt
    highest = max(draft.attempt(number).incarnation, *(pod.incarnation for pod in o.pods if pod.attempt == number), 1)
    draft.record(number, incarnation=highest + count)
    return highest + 1


def number_anew(o: Observation, draft: Draft) -> None:
    """Give a greater number to a pod of whose rank none is there: it may have been made before, and gone meanwhile.

    What the API server does not take was not made. For one that nobody waits for it is not told: that is asked for
    again now and then.
    """
    number, recovery = draft.status.attempt, draft.status.recovery
    idle, here = standing_by(draft.status, number), {pod.rank for pod in o.pods if pod.attempt == number}
    absent = [one for one in recovery.replacing if one.rank not in here and not _is_held_back(o, number, one)]
    due = [one for one in absent if (_waited(o, one) if one.rank in idle else not o.hindrance)]
    if any(one.rank in idle for one in due) and differs(o, draft):
        due = [one for one in due if one.rank not in idle]
    if due:
        first = numbers(o, draft, len(due))
        again = {one.rank: first + index for index, one in enumerate(due)}
        replacing = (
            one.model_copy(
                # Nobody saw the end of what may have been made meanwhile.
                update={"incarnation": again[one.rank], "ended": None, **({"time": o.now} if one.rank in idle else {})}
            )
            if one.rank in again
            else one
            for one in recovery.replacing
        )
        draft.set(recovery=recovery.model_copy(update={"replacing": tuple(replacing)}))


def _waited(o: Observation, one: Replacing) -> bool:
    return one.time is None or not timedelta() <= o.now - one.time < AGAIN


def ask_again(o: Observation, draft: Draft) -> None:
    """Have pods made anew which have no node and keep off one that may be used again: new ones, and those standing by.

    A pod's affinity stays as it was made, and nothing else would make it anew. Nothing of it has run. All pods of a gang that
    was never whole are `reschedule`'s.
    """
    number, recovery = draft.status.attempt, draft.status.recovery
    idle, off = standing_by(draft.status, number), {pod.rank: pod for pod in o.of_attempt(number) if pod.keeps_off}
    known = {one.rank: one for one in recovery.replacing}
    waiting = [
        pod
        for rank, pod in off.items()
        if rank in idle.union(known) and not (pod.scheduled or pod.gated or pod.deleting or pod.stopped)
    ]
    if not waiting:
        return
    avoid.prune(o, draft)
    new = pod_manifest(o.job, o.spec, attempt=number, rank=0, image="", avoided=draft.status.avoided_nodes)
    still = kept_off(new["spec"].get("affinity") or {})
    waiting = [pod for pod in waiting if not pod.keeps_off <= still]
    new_ones = [pod.rank for pod in waiting if pod.rank not in known][: places_for_idle(known)]
    waiting = [pod for pod in waiting if pod.rank in known or pod.rank in new_ones]
    if not waiting or differs(o, draft):
        return
    first = numbers(o, draft, len(waiting))
    for index, pod in enumerate(waiting):
        one = known.get(pod.rank) or Replacing(rank=pod.rank, incarnation=1, reason=Reason.NODE_RETURNED.value)
        # Without a time one that nobody waits for is asked for as soon as the pod before it is gone.
        asked = {"time": None} if pod.rank in idle else {}
        known[pod.rank] = one.model_copy(update={"incarnation": first + index, "ended": None, **asked})
    write_down(draft, known)


def write_down(draft: Draft, known: Mapping[int, Replacing]) -> None:
    """These are the pods that are made anew, by rank; no surge pod is waited for in their places any more."""
    recovery = draft.status.recovery
    replacing = tuple(known[rank] for rank in sorted(known))
    surging = tuple(one for one in recovery.surging if one.rank not in known)
    draft.set(recovery=recovery.model_copy(update={"replacing": replacing, "surging": surging}))


def differs(o: Observation, draft: Draft) -> bool:
    """Whether a pod that is made now would be made from something else than those of the round were."""
    new = {one.rank for one in draft.status.recovery.replacing}
    return not making.fit(o, draft, [pod for pod in o.members(draft.status.attempt) if pod.rank not in new])


def places_for_idle(known: Collection[int]) -> int:
    """How many more pods that stand by may be made anew, beside these: some places in the status are left for members."""
    return max(0, MAX_LOST // 2 - len(known))


def carry_out(o: Observation, draft: Draft) -> None:
    """Delete the pods that are replaced, and make the new ones."""
    number, replacing = draft.status.attempt, draft.status.recovery.replacing
    old = {one.rank: before(o, number, one) for one in replacing}
    delete_superseded(o, draft, [pod for pods in old.values() for pod in pods])
    idle = standing_by(draft.status, number)
    due = list(wanted(o, draft))
    if due:
        avoid.prune(o, draft)  # nodes that were given back take them
    for optional in (False, True):
        if some := [one for one in due if (one.rank in idle) is optional]:
            draft.act(making.pods(o, draft, making.maker(o, draft), some, optional=optional))
    first = next((one for one in replacing if one.rank == 0), None)
    # One name for each pod stays true where the pod before it is dead: it has no address any more.
    renamed = first is not None and not (names_all(o.spec) and all(pod.stopped for pod in old[0]))
    if first and renamed and o.service and o.service.ours and o.service.incarnation != first.incarnation:
        chosen = selector(o.job, number, first.incarnation)
        draft.act(SelectAttempt(service_name(o.job.name), o.service.uid, chosen))
    if not idle.issuperset(one.rank for one in due) or any(not pod.stopped for pods in old.values() for pod in pods):
        draft.again(LOOK_AGAIN_SECONDS)


def name_all_again(o: Observation, draft: Draft) -> None:
    """Once the rank 0 before this one is dead, each pod has its name again."""
    number, service = draft.status.attempt, o.service
    narrowed = service is not None and service.ours and service.attempt == number and service.incarnation > 1
    dead = all(pod.stopped for pod in o.superseded(number) if pod.rank == 0)
    if service and narrowed and dead and names_all(o.spec):
        draft.act(SelectAttempt(service_name(o.job.name), service.uid, selector(o.job, number)))


def delete_superseded(o: Observation, draft: Draft, pods: Sequence[Pod]) -> None:
    """Delete pods whose place others take."""
    delete(draft, pods, grace_seconds=o.spec.recovery.fault_grace_period_seconds)


def wanted(o: Observation, draft: Draft) -> Iterator[making.Wanted]:
    """The new pods that are not made yet, and may be.

    One that the round does not need is not made from something else than the others were: the next attempt has it.
    """
    number = draft.status.attempt
    idle, known = standing_by(draft.status, number), o.job.status.recovery.replacing
    unneeded = idle.intersection(one.rank for one in draft.status.recovery.replacing)
    outdated = unneeded if unneeded and differs(o, draft) else frozenset()
    for one in draft.status.recovery.replacing:
        if any((pod.attempt, pod.rank, pod.incarnation) == (number, one.rank, one.incarnation) for pod in o.pods):
            continue
        old = before(o, number, one)
        if not old and one.rank in idle and one in known:
            continue  # it may have been made: its number is too old
        if _is_held_back(o, number, one):
            continue
        if one.rank not in outdated and _has_place(o, draft, old):
            yield making.Wanted(rank=one.rank, incarnation=one.incarnation, follows_the_dead=seen_to_end(old))


def _has_place(o: Observation, draft: Draft, old: Sequence[Pod]) -> bool:
    """Whether it may be made beside the pods before it: none is left, or the gang is without them and another node has room.

    Whoever the operator alone misses may train: its next pod would throw it out.
    """
    left = [pod for pod in old if not room.is_free(o, draft, pod)]
    news = o.progress if o.progress and o.progress.attempt == draft.status.attempt else None
    lost = {(told.rank, told.incarnation) for told in news.lost} if news else set()
    return not left or (all((pod.rank, pod.incarnation) in lost for pod in left) and room.is_elsewhere(o, draft, left))


def _is_held_back(o: Observation, number: int, one: Replacing) -> bool:
    """Whether it gave way to rank 0's pod, which has no node yet: it would take that node itself."""
    return one.reason == Reason.GAVE_WAY and not any(pod.rank == 0 and pod.scheduled for pod in o.of_attempt(number))


def seen_to_end(pods: Sequence[Pod]) -> bool:
    """Whether the containers of all of them were seen to end: then nobody need wait for what they may still do."""
    return bool(pods) and all(pod.ending is not None and pod.ending.code is not None for pod in pods)


def before(o: Observation, number: int, one: Replacing) -> list[Pod]:
    """The pods whose place it takes."""
    return [
        pod for pod in o.pods if (pod.attempt, pod.rank) == (number, one.rank) and pod.incarnation < one.incarnation
    ]
