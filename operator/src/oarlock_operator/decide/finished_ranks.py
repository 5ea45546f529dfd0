"""Ranks that ended well are written down: the API forgets a deleted pod, and an operator that starts anew what it saw.

Whoever deletes such a pod afterwards, be it a collector of finished pods or finish, takes nothing from the gang.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from oarlock_api.contract.names import pod_name
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


def as_ranges(ranks: Collection[int]) -> str:
    """Numbers as people write them: 0-3,8."""
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def from_ranges(text: str | None) -> frozenset[int]:
    """What as_ranges wrote."""
    ends = [part.partition("-") for part in (text or "").split(",") if part]
    return frozenset(rank for first, _, last in ends for rank in range(int(first), int(last or first) + 1))
