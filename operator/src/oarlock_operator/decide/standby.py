"""Standby: which pods of a gang its round does not need, and what is wrong with them.

Spares (spec.spares) stand by from the start. Later rank 0's agent tells who trains: a spare that took a lost pod's place
does, and the pod that is made anew for that one stands by. What happens to a pod that stands by ends no attempt.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from datetime import datetime, timedelta

from oarlock_api.contract.status import PodStatus
from oarlock_api.history import Round, Rung
from oarlock_api.spec import TrainingJobSpec
from oarlock_api.status import MAX_STANDBY
from oarlock_operator.decide import making, new_pods, room
from oarlock_operator.decide.draft import Draft
from oarlock_operator.model.observation import Observation, gang_size, standing_by

_MOST_NAMED = 8


def heard(o: Observation) -> Observation:
    """The same with who stands by, as rank 0's agent tells: what all of the pass goes by, and what is written down.

    For the time in which nobody tells: one that is lost is to be known for a member, or for a spare, without asking.
    """
    news, status = o.progress, o.job.status
    number = status.attempt
    if o.job.spec is None or o.job.deleting or status.completion_time is not None:
        return o
    if news is None or not number or news.attempt != number:
        return o
    if news.round == 1 and any(pod.uid == news.pod_uid and pod.incarnation > 1 for pod in o.pods):
        return o  # a new rank 0 has not begun a round yet
    members, size = _members(o.job.spec, news), gang_size(o.job.spec, status, number)
    idle = tuple(rank for rank in range(size) if rank not in members)
    if not members <= set(range(size)) or len(idle) > MAX_STANDBY:
        return o
    return replace(o, job=replace(o.job, status=status.model_copy(update={"standby": idle})))


def _members(spec: TrainingJobSpec, news: PodStatus) -> set[int]:
    """Whom the round needs; the first of the gang where what is told is no round that the job may have."""
    told = set(news.members)
    least = spec.elastic.min_nodes if spec.elastic else spec.nodes
    return told if 0 in told and least <= len(told) <= spec.nodes else set(range(spec.nodes))


def instead(o: Observation, draft: Draft, lost: Collection[int]) -> str:
    """How the gang goes on before new pods of these members are there, for people; empty where it waits for them.

    As their leader chooses, which waits for spares no longer than for the leases of the lost, and for others patienceSeconds.
    """
    number, elastic = draft.status.attempt, o.spec.elastic
    idle = standing_by(draft.status, number)
    ready = sum(pod.rank in idle and pod.ready and not pod.stopped for pod in o.of_attempt(number))
    left = gang_size(o.spec, draft.status, number) - len(idle) - len(lost) + ready
    if 0 in lost:
        return ""
    if left >= o.spec.nodes:
        return "A spare takes its place." if len(lost) == 1 else "Spares take their places."
    if elastic is None or left < elastic.min_nodes:
        return ""
    at = o.now + timedelta(seconds=elastic.patience_seconds)
    return f"From {at:%H:%M:%S} UTC on {left} of {o.spec.nodes} nodes train, unless more are there by then."


def lacking(o: Observation, draft: Draft) -> str:
    """What the job asks for of spares, or of going on with fewer nodes, and does not have; empty for nothing."""
    spec = o.job.spec
    asked = [name for name in ("spares", "elastic") if spec and getattr(spec, name)]
    if spec is None or not asked:
        return ""
    if why := making.never_replaces(o, draft):
        return f"without effect: spec.{' and spec.'.join(asked)}, because {why}"
    if draft.status.recovery.stage is not None:
        return ""
    said = "" if fewer(o, draft) else _absent(o, draft)
    return f"spares that could take no place now: {said}" if said else ""


def fewer(o: Observation, draft: Draft) -> str:
    """On how many nodes the gang trains, since when, and what those wait for that lack; empty where it is on all."""
    status, spec, number = draft.status, o.job.spec, draft.status.attempt
    if spec is None or spec.elastic is None or status.recovery.stage is not None:
        return ""
    left = gang_size(spec, status, number) - len(standing_by(status, number))
    if left >= spec.nodes:
        return ""
    resized = [one for one in status.rounds if one.attempt == number and one.rung in (Rung.SHRINK, Rung.GROW)]
    began = _trained_again(resized[-1]) if resized else None
    since = f" since {began:%Y-%m-%d %H:%M:%S} UTC" if began else ""
    why = _absent(o, draft)
    return f"trains on {left} of {spec.nodes} nodes{since}" + (f": {why}" if why else "")


def _trained_again(one: Round) -> datetime | None:
    """When the round after this one had done a step; None where it has not, or that is not known."""
    known = one.ended_time and one.down_seconds is not None
    return one.ended_time + timedelta(seconds=one.down_seconds or 0.0) if known and one.ended_time else None


def _absent(o: Observation, draft: Draft) -> str:
    """Why pods that stand by could take no place now."""
    number = draft.status.attempt
    here = {pod.rank: pod for pod in o.of_attempt(number) if not pod.gone}
    words, missing = [], False
    for rank in sorted(standing_by(draft.status, number)):
        pod = here.get(rank)
        if pod is None or pod.stopped or o.on_lost_node(pod):
            missing = True
            why = room.denied(o, draft, pod) if pod else ""
            words.append(f"pod {rank} of the gang is not there" + (f", and not made anew: {why}" if why else ""))
        elif pod.obstacle and not pod.started:
            words.append(
                f"{pod.name}: {pod.obstacle}" if pod.scheduled else f"{pod.name} waits for a node: {pod.obstacle}"
            )
    more = f"; and {len(words) - _MOST_NAMED} more" if len(words) > _MOST_NAMED else ""
    said = "; ".join(words[:_MOST_NAMED]) + more
    if missing and new_pods.differs(o, draft):
        # The operator, its keys or what may be edited while the job runs.
        said += f". A pod that is made now {new_pods.DIFFERS}, so the next attempt has all of them again"
    return said
