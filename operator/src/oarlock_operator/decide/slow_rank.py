"""Slow rank: a gang leaves the node of a rank that all others wait for, where its job asks for that (slowRank: Migrate).

Nothing is broken, so it moves only where that is sure to go well, and never in a loop: once a day at most, whichever node is
slow then; and never while a save takes longer than its pods have. The node is left to others, and to this job where no other
one is free: ten percent are no reason to wait. Its pods save before they leave, and no budget is charged.
"""

from __future__ import annotations

from datetime import timedelta

from oarlock_api.contract.status import Degradation, with_names
from oarlock_api.history import RecoveryStage
from oarlock_api.recovery import SlowRank
from oarlock_operator import schedulers
from oarlock_operator.decide import attempt, avoid
from oarlock_operator.decide.budgets import charged
from oarlock_operator.decide.draft import Draft
from oarlock_operator.decide.requests import grace_too_short
from oarlock_operator.faults.classify import Budget
from oarlock_operator.model.observation import Observation, by_rank
from oarlock_operator.model.plan import Look
from oarlock_operator.model.reasons import Reason

AGAIN = timedelta(hours=24)
"""From one move for a slow rank to the next: a gang whose every node is called slow trains on."""


def leave(o: Observation, draft: Draft) -> bool:
    """Write down the next attempt where the gang is to leave a slow node, and can; it is carried out by the next pass."""
    node, number = _slow_node(o, draft), draft.status.attempt
    if not node or o.spec.recovery.slow_rank is not SlowRank.MIGRATE or stays(o, draft):
        return False
    if not o.spares:
        draft.looks.add(Look.SPARES)
        draft.leaving.add(node)
        return False
    attempt.leave(o, draft, charged(draft.status.restarts, Budget.VOLUNTARY, now=o.now))
    avoid.avoid(o, draft, node, why=f"{Reason.SLOW_RANK} in attempt {number}", strict=False, hardens=False)
    following = attempt.begin(o, draft, reason=Reason.SLOW_RANK, stage=RecoveryStage.DRAIN)
    said = o.progress.degraded.get(Degradation.SLOW_RANK, "") if o.progress else ""
    message = f"the gang leaves node {node}: {with_names(said, by_rank(o.of_attempt(number)))}"[:1024]
    draft.set(reason=Reason.SLOW_RANK, message=message)
    draft.tell(Reason.SLOW_RANK, f"{message}. The pods save and leave; attempt {following} starts elsewhere.")
    draft.again(0)
    return True


def stays(o: Observation, draft: Draft) -> str:
    """Why a gang whose job wants to leave slow nodes does not; empty where it would, once there are spares."""
    if schedulers.system_of(draft.status.resolved).queues:
        return "the gang stays: it would leave for the end of its queue"
    moves = [one.start_time for one in draft.status.attempts if one.reason == Reason.SLOW_RANK and one.start_time]
    if any(o.now - moved < AGAIN for moved in moves):
        return "the gang stays: it has moved for a slow rank less than a day ago"
    if grace_too_short(draft):
        return "the gang stays: a save takes longer than its pods' grace"
    return ""


def _slow_node(o: Observation, draft: Draft) -> str:
    """The node that rank 0 tells of, while the whole gang trains there and nobody else wants it to move."""
    number = draft.status.attempt
    pods = o.members(number)
    if o.progress is None or o.progress.attempt != number or draft.status.recovery.stage is not None:
        return ""
    if any(pod.stopped or pod.deleting for pod in pods) or o.maintenance(number):
        return ""
    return next((pod.node for pod in pods if pod.rank == o.progress.slow_pod), "")
