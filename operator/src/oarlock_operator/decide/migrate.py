"""Migrate: a gang leaves nodes that somebody else marked for repair, as soon as others surely wait for it.

Nothing is broken yet, so nobody hurries: without a spare the gang trains on and says so (condition Degraded), for a gang
that waits in the queue does nothing at all. Its pods save before they leave, so ranks that start anew in them are waited for,
and no budget is charged.
"""

from __future__ import annotations

from oarlock_api.history import RecoveryStage
from oarlock_operator import schedulers
from oarlock_operator.decide import attempt, avoid
from oarlock_operator.decide.budgets import charged
from oarlock_operator.decide.draft import Draft
from oarlock_operator.faults.classify import Budget
from oarlock_operator.model.observation import Observation
from oarlock_operator.model.plan import Look
from oarlock_operator.model.reasons import Reason

LOOK_AGAIN_SECONDS = 2.0
"""Between looks at a gang whose ranks start anew, and have made no step."""


def migrate(o: Observation, draft: Draft) -> bool:
    """Write down the next attempt where the current one should move, and can; it is carried out by the next pass."""
    status = draft.status
    pods = o.members(status.attempt)
    if schedulers.system_of(status.resolved).queues:
        # It would leave for the end of its queue: no free node tells when it comes back.
        return False
    if status.recovery.stage is not None or any(pod.stopped or pod.deleting for pod in pods):
        return False
    leaving = o.maintenance(status.attempt)
    if not leaving:
        return False
    if o.spec.training and o.progress and o.progress.figures.step is None:
        draft.again(LOOK_AGAIN_SECONDS)
        return False
    if not o.spares:
        draft.looks.add(Look.SPARES)
        return False
    message = "; ".join(f"node {name}: {why.message}" for name, why in sorted(leaving.items()))[:1024]
    number = status.attempt
    attempt.leave(o, draft, charged(status.restarts, Budget.VOLUNTARY, now=o.now))
    for name, maintenance in leaving.items():
        avoid.avoid(o, draft, name, why=f"{Reason.NODE_MARKED} in attempt {number}", strict=not maintenance.enforced)
    following = attempt.begin(o, draft, reason=Reason.NODE_MARKED, stage=RecoveryStage.DRAIN)
    draft.set(reason=Reason.NODE_MARKED, message=message)
    draft.tell(Reason.NODE_MARKED, f"{message}. The pods save and leave; attempt {following} starts elsewhere.")
    draft.again(0)
    return True
