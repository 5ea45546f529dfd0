"""Rungs: how much was made anew after a round, and on how many nodes the next one trains."""

from __future__ import annotations

from oarlock_api.contract.exit_codes import ExitCode
from oarlock_api.contract.rounds import RoundEnd
from oarlock_api.history import Rung
from oarlock_operator.decide.draft import Draft
from oarlock_operator.decide.made_progress import last_round
from oarlock_operator.model.observation import Observation, standing_by

OF_LOST_PODS = frozenset({Rung.REPLACE_POD, Rung.TAKE_SPARE, Rung.SHRINK})
"""Those of rounds that ended because a pod was lost."""


def of_lost_pod(o: Observation, draft: Draft, end: RoundEnd) -> Rung:
    """How the gang went on without that pod."""
    if nodes_after(o, draft, end) < _nodes_before(o, draft, end):
        return Rung.SHRINK
    return Rung.TAKE_SPARE if end.spare else Rung.REPLACE_POD


def grew(o: Observation, draft: Draft, end: RoundEnd) -> bool:
    """Whether the round ended for nothing else than that the next one has more nodes."""
    more = nodes_after(o, draft, end) > _nodes_before(o, draft, end)
    return more and end.code == ExitCode.LEFT_ON_REQUEST and not end.lost_pod


def is_left_out(draft: Draft, end: RoundEnd) -> bool:
    """Whether the round that the leader tells of now goes on without the pod that was lost."""
    return end.lost_pod and end.rank in standing_by(draft.status, draft.status.attempt)


def nodes_after(o: Observation, draft: Draft, end: RoundEnd) -> int:
    """On how many nodes the next round trains: as many as this one, where no other size is told that the job allows."""
    least = o.spec.elastic.min_nodes if o.spec.elastic else o.spec.nodes
    # A new rank 0 takes the round before its first for one of all nodes.
    usual = o.spec.nodes if end.rank == 0 and end.lost_pod else _nodes_before(o, draft, end)
    return end.nodes if end.nodes is not None and least <= end.nodes <= o.spec.nodes else usual


def _nodes_before(o: Observation, draft: Draft, end: RoundEnd) -> int:
    before = last_round(draft, before=end.number)
    return (before.node_count if before else None) or o.spec.nodes


def node_count(o: Observation, draft: Draft, end: RoundEnd) -> int | None:
    """The same as it is booked: None for as many as the job asks for."""
    nodes = nodes_after(o, draft, end)
    return nodes if nodes != o.spec.nodes else None
