"""KAI: a PodGroup in a queue, made here, because KAI's own podgrouper knows no TrainingJob and would ask for one pod.

It keeps its hands off pods with the annotation skip-podgrouper (KAI 0.15 and later). A topology is one that a KAI
Topology has as a level; where none has, pod affinity sees to it.
"""

from __future__ import annotations

from typing import Any

from oarlock_api.contract.wire import text
from oarlock_api.scheduling import Topology
from oarlock_operator.manifests.grouping import Grouping
from oarlock_operator.schedulers.system import GangRequest, System, priority_in_queue

API = "scheduling.run.ai/v2alpha2"
TOPOLOGIES = "kai.scheduler/v1alpha1"
OVER_QUOTA = {"OverLimit", "NonPreemptibleOverQuota"}
"""Reasons of a group that waits for its queue, and not for a node."""


def grouping(request: GangRequest) -> Grouping:
    """The PodGroup, the annotations that name it and keep the podgrouper off, and the queue's label."""
    scheduling = request.spec.scheduling
    level = _level(request, scheduling.topology)
    spec = {
        "minMember": request.spec.nodes,
        "queue": scheduling.queue or "",
        **priority_in_queue(scheduling),
        **({"topologyConstraint": level} if level else {}),
    }
    return Grouping(
        group=request.group(API, spec),
        labels={"kai.scheduler/queue": scheduling.queue or ""},
        annotations={"pod-group-name": request.name, "kai.scheduler/skip-podgrouper": "true"},
        near=Topology() if level else scheduling.topology,
    )


def _level(request: GangRequest, topology: Topology) -> dict[str, str]:
    field = "requiredTopologyLevel" if topology.required_key else "preferredTopologyLevel"
    known = request.systems.topologies
    return next(({"topology": known[key], field: key} for key in topology.keys if key in known), {})


def waits(group: dict[str, Any]) -> str:
    """KAI's explanation where the queue is what holds the group back."""
    for condition in (group.get("status") or {}).get("schedulingConditions") or []:
        for why in condition.get("reasons") or []:
            if why.get("reason") in OVER_QUOTA:
                return text(why.get("message"), 512) or text(why.get("reason"), 64)
    return ""


SYSTEM = System(
    grouping=grouping,
    apis=(API,),
    scheduler="kai-scheduler",
    queues=True,
    waits=waits,
    # It marks them (DisruptionTarget) only in newer releases, and where its scheduler is told to.
    unmarked="deleted, as KAI preempts",
)
