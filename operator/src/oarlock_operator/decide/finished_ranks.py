"""Ranks that ended well are written down: the API forgets a deleted pod, and an operator that starts anew what it saw.

Whoever deletes such a pod afterwards, be it a collector of finished pods or finish, takes nothing from the gang.
"""

from __future__ import annotations

from dataclasses import replace

from oarlock_api.contract.names import pod_name
from oarlock_api.contract.ranges import as_ranges, from_ranges
from oarlock_operator.decide.draft import Draft
from oarlock_operator.model.observation import Ending, Observation, Pod


def recalled(o: Observation) -> Observation:
    """The same with a pod, which is gone and ended with 0, for each rank that did so and has none any more."""
    number = o.job.status.attempt
    replaced = {one.rank for one in o.job.status.recovery.replacing}
    there = {pod.rank for pod in o.pods if pod.attempt == number} | replaced
    missing = _written(o) - there
    if not missing:
        return o
    ending = Ending(code=0, reason="", message="")
    names = {rank: pod_name(o.job.name, number, rank) for rank in sorted(missing)}
    pods = (
        Pod(name=name, uid="", attempt=number, rank=rank, scheduled=True, started=True, gone=True, ending=ending)
        for rank, name in names.items()
    )
    return replace(o, pods=(*o.pods, *pods))


def note(o: Observation, draft: Draft) -> None:
    """Write down which ranks of the current attempt have ended well, once one has. One that runs anew no longer has."""
    number = draft.status.attempt
    ended = {pod.rank for pod in o.of_attempt(number) if pod.succeeded}
    if number and (ended or draft.attempt(number).succeeded_ranks):
        draft.record(number, succeeded_ranks=as_ranges(ended) or None)


def _written(o: Observation) -> frozenset[int]:
    status = o.job.status
    return next(
        (from_ranges(one.succeeded_ranks) for one in status.attempts if one.number == status.attempt), frozenset()
    )
