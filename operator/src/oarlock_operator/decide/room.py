"""Room: when another pod may take the place of one that is lost. That is the gang system's to say, besides the operator."""

from __future__ import annotations

from collections.abc import Sequence

from oarlock_operator import schedulers
from oarlock_operator.decide.draft import Draft
from oarlock_operator.model.observation import Observation, Pod
from oarlock_operator.model.plan import Look


def denied(o: Observation, draft: Draft, pod: Pod) -> str:
    """Why the gang system will let none in, to another node, for this one, in a clause; empty where it will."""
    gang = draft.status.resolved.gang if draft.status.resolved else None
    if pod.pinned:
        return f"{gang} ties each pod to its node"
    if _after_failed(draft) and not is_free(o, draft, pod) and (o.on_lost_node(pod) or o.unreachable(pod)):
        return f"{gang} counts a pod until it has failed, which none does whose node is lost"
    return ""


def is_free(o: Observation, draft: Draft, pod: Pod) -> bool:
    """Whether the next pod may be made now: of no rank two may live, unless nobody can stop the old one."""
    if _after_failed(draft):
        return pod.failed or pod.gone or (pod.deleting and not (pod.node or pod.scheduled))
    return pod.stopped or pod.node_lost or o.unreachable(pod)


def is_elsewhere(o: Observation, draft: Draft, pods: Sequence[Pod]) -> bool:
    """Whether nodes surely have room for the next ones of these pods while these are still on theirs.

    Else a new pod would wait for the old one's node, or push another job's pod off its own.
    """
    if not schedulers.system_of(draft.status.resolved).surges:
        return False
    if not o.spares:
        draft.looks.add(Look.SPARES)
        draft.leaving |= {pod.node for pod in pods if pod.node}
    return o.spares


def _after_failed(draft: Draft) -> bool:
    return schedulers.system_of(draft.status.resolved).after_failed
