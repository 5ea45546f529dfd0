"""Kueue: a group of plain pods, held back by a scheduling gate until the queue has room for all of them.

Kueue makes its Workload from the pods' labels, named after the group. What it takes away again is never put back into
the same group: each attempt is a group of its own, and one whose pods have all ended frees its quota (retriable-in-group).
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from oarlock_api.contract.names import Label
from oarlock_api.contract.wire import text
from oarlock_operator.manifests.grouping import Grouping
from oarlock_operator.schedulers.system import GangRequest, System

QUEUE = "kueue.x-k8s.io/queue-name"
MANAGED = "kueue.x-k8s.io/managed"
"""Label of a pod that Kueue has taken."""


def grouping(request: GangRequest) -> Grouping:
    """Labels and annotations; the object is Kueue's own."""
    scheduling = request.spec.scheduling
    labels = {QUEUE: scheduling.queue or "", "kueue.x-k8s.io/pod-group-name": request.name}
    if scheduling.queue_priority_class_name:
        labels["kueue.x-k8s.io/priority-class"] = scheduling.queue_priority_class_name
    annotations = {
        "kueue.x-k8s.io/pod-group-total-count": str(request.size),
        "kueue.x-k8s.io/pod-group-pod-index-label": Label.RANK.value,
        "kueue.x-k8s.io/retriable-in-group": "false",
        # Without it a pod that keeps off one more node than the others would be none of theirs, and stay gated.
        "kueue.x-k8s.io/role-hash": "main",
    }
    if key := scheduling.topology.required_key:
        annotations["kueue.x-k8s.io/podset-required-topology"] = key
    elif keys := scheduling.topology.preferred_keys:
        # One is all that Kueue takes: from that level it goes up by the cluster's own Topology.
        annotations["kueue.x-k8s.io/podset-preferred-topology"] = keys[0]
    return Grouping(labels=labels, annotations=annotations)


def waits(workload: dict[str, Any]) -> str:
    """What the Workload says of its quota, empty once it has it."""
    quota = _condition(workload, "QuotaReserved")
    return text(quota.get("message"), 512) if quota.get("status") == "False" else ""


def let_in(workload: dict[str, Any]) -> datetime | None:
    """When the Workload was admitted: then the gates go."""
    admitted = _condition(workload, "Admitted")
    if admitted.get("status") != "True":
        return None
    try:
        return datetime.fromisoformat(admitted["lastTransitionTime"])
    except (KeyError, TypeError, ValueError):
        return None


def _condition(workload: dict[str, Any], kind: str) -> dict[str, Any]:
    conditions = (workload.get("status") or {}).get("conditions") or []
    return next((each for each in conditions if each.get("type") == kind), {})


SYSTEM = System(
    grouping=grouping,
    apis=("kueue.x-k8s.io/v1beta2", "kueue.x-k8s.io/v1beta1"),
    resource="localqueues",
    makes_groups=False,
    queues=True,
    replaces_pods=True,
    counts_spares=True,
    after_failed=True,
    waits=waits,
    let_in=let_in,
    ignored="Kueue has not taken the pods, which run beside its quota: is its integration `pod` on, does "
    "managedJobsNamespaceSelector match the namespace, and is TrainingJob absent from externalFrameworks?",
)
