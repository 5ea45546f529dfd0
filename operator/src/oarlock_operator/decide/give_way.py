"""Give way: a pod that can be spared leaves its node to rank 0's next pod, without which there is no round.

Any other place a spare takes, or an elastic gang goes on without it. Where the scheduler finds no node for rank 0's pod, as
where the old one is avoided and all others are in use, the others would stand by in vain: so a spare goes, or the last pod
of a gang that may be smaller.

Intent first: it is written down as one that is made anew, is deleted because of that, and made anew once rank 0's has a node.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from oarlock_api.contract.rounds import MAX_LOST
from oarlock_api.history import RecoveryStage, Replacing
from oarlock_operator.decide import new_pods
from oarlock_operator.decide.draft import Draft
from oarlock_operator.model.observation import Observation, Pod, standing_by
from oarlock_operator.model.reasons import Reason

SETTLED = timedelta(seconds=10)
"""Until then the scheduler may still count what ran on the lost pod's node, or another node may be found."""


def give_way(o: Observation, draft: Draft) -> None:
    """Have a pod leave its node to rank 0's, where that one has found none for long enough."""
    number, recovery = draft.status.attempt, draft.status.recovery
    known = {one.rank: one for one in recovery.replacing}
    pods = {pod.rank: pod for pod in o.of_attempt(number)}
    first = pods.get(0)
    if recovery.stage != RecoveryStage.REPLACE or 0 not in known or first is None:
        return
    if not first.obstacle or first.scheduled or first.gated or first.deleting:
        return
    if len(known) >= MAX_LOST or any(one.reason == Reason.GAVE_WAY for one in recovery.replacing):
        return
    living = [
        pod
        for pod in pods.values()
        if pod.rank not in known and pod.scheduled and not (pod.deleting or pod.stopped) and _takes(o, first, pod.node)
    ]
    chosen, patience = _spared(o, draft, living)
    if chosen is None:
        return
    since = known[0].time or o.now
    if (left := (since + patience - o.now).total_seconds()) > 0:
        draft.again(left)
        return
    known[chosen.rank] = Replacing(
        rank=chosen.rank,
        incarnation=new_pods.numbers(o, draft, 1),
        node_name=chosen.node,
        reason=Reason.GAVE_WAY.value,
        round=known[0].round,  # without a time it is made as soon as it may be
    )
    new_pods.write_down(draft, known)
    message = f"no node is free for {first.name}: {chosen.name} leaves {chosen.node} to it, and is made anew"
    draft.tell(Reason.GAVE_WAY, f"{message}. {first.obstacle}", warning=True)


def _spared(o: Observation, draft: Draft, living: Sequence[Pod]) -> tuple[Pod | None, timedelta]:
    """The pod that the gang can best do without, and how long it waits before it does; None where it needs all."""
    idle = standing_by(draft.status, draft.status.attempt)
    if spares := [pod for pod in living if pod.rank in idle]:
        return max(spares, key=lambda pod: pod.rank), SETTLED
    elastic = o.spec.elastic
    if elastic is None or len(living) < elastic.min_nodes:  # rank 0's comes for the one that goes
        return None, SETTLED
    patience = timedelta(seconds=elastic.patience_seconds)
    return max(living, key=lambda pod: pod.rank, default=None), max(SETTLED, patience)


def _takes(o: Observation, pod: Pod, name: str) -> bool:
    """Whether the pod may be placed on this node once it is free."""
    node = o.nodes.get(name)
    works = node is None or (node.exists and node.ready and not node.unschedulable and node.maintenance is None)
    return works and name not in pod.keeps_off
