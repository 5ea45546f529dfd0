"""Unplaced: why pods of a gang have no node. What a person can mend comes before the scheduler's words."""

from __future__ import annotations

from collections.abc import Iterable

from oarlock_operator.decide.draft import Draft
from oarlock_operator.model.observation import Pod
from oarlock_operator.model.reasons import Reason


def unplaced(draft: Draft, pods: Iterable[Pod]) -> tuple[Reason, str] | None:
    """Reason and words for the pods that the scheduler has complained about; None where there are none."""
    obstacles = sorted({pod.obstacle for pod in pods if pod.obstacle and not pod.scheduled})
    if not obstacles:
        return None
    said = "; ".join(obstacles)
    avoided = [node for node in draft.status.avoided_nodes if node.strict]
    if not avoided:
        return Reason.UNSCHEDULABLE, said[:2048]
    names = ", ".join(f"{node.name} ({node.reason})" for node in avoided)
    mend = f"Repair one and have it used again (oarlock uncordon {avoided[0].name}), or suspend, lower spec.nodes, and resume"
    message = f"avoided: {names}. {mend}. {said}"
    return Reason.NOT_ENOUGH_HEALTHY_NODES, message[:2048]
