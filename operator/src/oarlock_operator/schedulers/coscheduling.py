"""The plugin Coscheduling of kubernetes-sigs/scheduler-plugins: a PodGroup, and a label on each pod.

Its scheduler's profile has a name that only the cluster's administrator knows: scheduling.schedulerName.
"""

from __future__ import annotations

from oarlock_operator.manifests.grouping import Grouping
from oarlock_operator.schedulers.system import GangRequest, System

API = "scheduling.x-k8s.io/v1alpha1"


def grouping(request: GangRequest) -> Grouping:
    """The PodGroup, and the label that names it. The plugin knows no topology, so pod affinity does."""
    return Grouping(
        group=request.group(API, {"minMember": request.spec.nodes}),
        labels={"scheduling.x-k8s.io/pod-group": request.name},
        near=request.spec.scheduling.topology,
    )


SYSTEM = System(grouping=grouping, apis=(API,), replaces_pods=True)
