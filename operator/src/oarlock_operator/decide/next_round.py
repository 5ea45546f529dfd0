"""The next round: whether one has begun since pods were lost, with those that take their places or without them.

Rank 0's agent tells its number, which pods train in it, and which ones it still waits for.
"""

from __future__ import annotations

from oarlock_api.contract.status import PodStatus
from oarlock_api.history import Replacing
from oarlock_operator.decide.draft import Draft
from oarlock_operator.model.observation import Observation, newest, standing_by


def note_round(o: Observation, draft: Draft) -> None:
    """Write down that pods were still lost in the round that is told.

    It may be a later one than was known when they were. Without its new pod no later round has begun that needs it.
    """
    recovery, news = draft.status.recovery, o.progress
    if news is None or news.attempt != draft.status.attempt:
        return
    idle, lost = standing_by(draft.status, news.attempt), {told.rank for told in news.lost}
    replacing = tuple(
        one.model_copy(update={"round": max(one.round, news.round)})
        if one.rank not in idle and (one.rank in lost or not _started(o, draft, one))
        else one
        for one in recovery.replacing
    )
    if replacing != recovery.replacing:
        draft.set(recovery=recovery.model_copy(update={"replacing": replacing}))


def began(o: Observation, draft: Draft) -> bool:
    """Whether the gang is in a round that it was not in when a pod was lost, and that lacks none."""
    number, news = draft.status.attempt, o.progress
    idle = standing_by(draft.status, number)
    needed = [one for one in draft.status.recovery.replacing if one.rank not in idle]
    if news is None or news.attempt != number:
        # Nobody tells, as at an operator's start: a round that was booked since has ended, and another one followed it.
        return all(draft.status.round > one.round for one in needed)
    leader = next((one for one in needed if one.rank == 0), None)
    if leader and not any(pod.uid == news.pod_uid for pod in newest(o.pods, draft.status, number)):
        return False  # the word of the one before it
    return {told.rank for told in news.lost} <= idle and all(_follows(news.round, one, leader) for one in needed)


def _follows(number: int, one: Replacing, leader: Replacing | None) -> bool:
    """Whether the round of this number is after the one in which that pod was lost.

    A new rank 0 tells 1 before its first, and counts on from what the others were in: not all that the one before it told.
    """
    led_anew = leader is not None and one.round <= leader.round
    return number > 1 and number >= one.round if led_anew else number > one.round


def trains(o: Observation, draft: Draft, news: PodStatus) -> bool:
    """Whether the gang has made a step in such a round, as its leader tells."""
    idle = standing_by(draft.status, draft.status.attempt)
    needed = [one for one in draft.status.recovery.replacing if one.rank not in idle]
    if news.attempt != draft.status.attempt or not all(_started(o, draft, one) for one in needed):
        return False
    # A trainer of the job's own need not tell of steps.
    return began(o, draft) and (news.figures.step is not None or o.spec.custom is not None)


def is_there(o: Observation, draft: Draft, one: Replacing, news: PodStatus) -> bool:
    """Whether the new pod works, and the leader knows it."""
    return _started(o, draft, one) and all(told.rank != one.rank for told in news.lost)


def _started(o: Observation, draft: Draft, one: Replacing) -> bool:
    pods = newest(o.pods, draft.status, draft.status.attempt)
    pod = next((pod for pod in pods if pod.rank == one.rank), None)
    return pod is not None and pod.started and not pod.stopped
