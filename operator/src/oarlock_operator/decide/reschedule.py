"""Reschedule: a gang that waits for nodes is made anew once a node that its pods keep off may be used again.

A pod's affinity stays as it was made: without this, the gang would wait for placementTimeoutSeconds beside a node that was
mended. Where some of the pods have a node it happens only if all surely find room then, so that nobody gives up a place for
nothing; and only while the pods keep off more avoided nodes than new ones would: each node that comes back does it once. What
a mutating webhook keeps them off does not count. It costs no budget.
"""

from __future__ import annotations

from oarlock_api.contract.node_affinity import kept_off
from oarlock_api.history import RecoveryStage
from oarlock_operator import schedulers
from oarlock_operator.decide import attempt, avoid
from oarlock_operator.decide.draft import Draft
from oarlock_operator.manifests.pod import pod as pod_manifest
from oarlock_operator.model.observation import Observation
from oarlock_operator.model.plan import Look
from oarlock_operator.model.reasons import Reason

LOOK_AGAIN_SECONDS = 30.0
"""How often room is looked for. spares.py remembers for as long that there was none."""


def reschedule(o: Observation, draft: Draft) -> bool:
    """Write down the next attempt where the waiting one would have room in its place; it is carried out by the next pass."""
    number = draft.status.attempt
    made = draft.attempt(number).created_time
    if made is None or not _waits_for_nodes(o, draft):
        return False
    before = draft.status.avoided_nodes
    avoid.prune(o, draft)
    if draft.status.avoided_nodes != before:
        # Whether there is room is asked of a status that says so.
        draft.again(0)
        return False
    back = _nodes_that_came_back(o, draft)
    if not back:
        return False
    placed = any(pod.scheduled for pod in o.of_attempt(number))
    if placed and not o.spares:
        draft.looks.add(Look.SPARES)
        # Room elsewhere is no event of this job's; a "no" is remembered for this long, too.
        draft.again(LOOK_AGAIN_SECONDS)
        return False
    room = f", and there is room for all {o.spec.nodes} pods" if placed else ""
    message = f"{', '.join(back)} may be used again{room}: they are made anew"
    attempt.begin(o, draft, reason=Reason.NODE_RETURNED, stage=RecoveryStage.DRAIN)
    draft.set(reason=Reason.NODE_RETURNED, message=message)
    draft.tell(Reason.NODE_RETURNED, message)
    draft.again(0)
    return True


def _waits_for_nodes(o: Observation, draft: Draft) -> bool:
    """Whether pods of a gang in no queue have no node. One that was let in would go back to the end of its queue."""
    pods = o.members(draft.status.attempt)
    return (
        draft.status.recovery.stage == RecoveryStage.SCHEDULE
        and not schedulers.system_of(draft.status.resolved).queues
        and not any(pod.stopped or pod.deleting or pod.gated for pod in pods)
        and not all(pod.scheduled for pod in pods)
    )


def _nodes_that_came_back(o: Observation, draft: Draft) -> list[str]:
    """Nodes that were avoided when the waiting pods were made, and that new ones would not keep off."""
    number = draft.status.attempt
    off = {name for pod in o.of_attempt(number) for name in pod.keeps_off}
    if not off:
        return []
    new = pod_manifest(o.job, o.spec, attempt=number, rank=0, image="", avoided=draft.status.avoided_nodes)
    return sorted(off - kept_off(new["spec"].get("affinity") or {}))
