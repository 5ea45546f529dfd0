"""Volcano: a PodGroup in a queue, and an annotation on each pod.

minResources is what makes a queue a queue: without it Volcano lets every group in, and the gang would wait for nodes
instead of for its turn. Volcano's topology knows tiers of HyperNodes, not labels: a key without a slash is the name of a
tier, any other one is a node's label and becomes pod affinity.
"""

from __future__ import annotations

from typing import Any

from oarlock_api.contract.wire import text
from oarlock_api.scheduling import Topology
from oarlock_operator.manifests.grouping import Grouping
from oarlock_operator.manifests.pod import pod as pod_manifest
from oarlock_operator.manifests.pod_requests import requests
from oarlock_operator.schedulers.system import GangRequest, System, priority_in_queue

API = "scheduling.volcano.sh/v1beta1"
GROUP_NAME = "scheduling.k8s.io/group-name"


def grouping(request: GangRequest) -> Grouping:
    """The PodGroup, and the annotation that names it."""
    scheduling = request.spec.scheduling
    tier = _tier(scheduling.topology)
    spec = {
        "minMember": request.spec.nodes,
        "minResources": _resources(request),
        **({"queue": scheduling.queue} if scheduling.queue else {}),
        **priority_in_queue(scheduling),
        **({"networkTopology": tier} if tier else {}),
    }
    return Grouping(
        group=request.group(API, spec),
        annotations={GROUP_NAME: request.name},
        near=Topology() if tier else scheduling.topology,
    )


def _tier(topology: Topology) -> dict[str, str]:
    mode = "hard" if topology.required_key else "soft"
    return next(({"mode": mode, "highestTierName": key} for key in topology.keys if "/" not in key), {})


def _resources(request: GangRequest) -> dict[str, str]:
    """What the whole gang asks for, in plain numbers: cores, bytes, pieces.

    Nothing where that cannot be read: the API server will refuse the pods, and say why.
    """
    pod = pod_manifest(request.job, request.spec, attempt=request.attempt, rank=0, image="")
    try:
        asked = requests(pod)
    except ValueError:
        return {}
    return {name: f"{(each * request.spec.nodes).normalize():f}" for name, each in sorted(asked.items())}


def waits(group: dict[str, Any]) -> str:
    """Pending is Volcano's word for a group that its queue has not let in."""
    status = group.get("status") or {}
    if status.get("phase") != "Pending":
        return ""
    said = [text(each.get("message"), 512) for each in status.get("conditions") or [] if each.get("status") == "True"]
    return next((words for words in reversed(said) if words), "Volcano has not let the group in yet")


SYSTEM = System(
    grouping=grouping,
    apis=(API,),
    scheduler="volcano",
    queues=True,
    replaces_pods=True,
    waits=waits,
)
