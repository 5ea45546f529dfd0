"""Kubernetes' own gangs (scheduling.k8s.io PodGroup): alpha in 1.36, beta in 1.37, behind the feature gate GenericWorkload.

A PodGroup stands alone, without a Workload. Where the gate is off, the API server drops the pods' membership without a
word: whoever made the pods has to look. A required topology is also written as pod affinity, because the group's own
constraint has a gate of its own and is dropped as quietly; a preferred one the group does not know.
"""

from __future__ import annotations

from typing import Any

from oarlock_api.scheduling import Gang
from oarlock_operator.manifests.grouping import Grouping
from oarlock_operator.schedulers.system import GangRequest, System

APIS = tuple(f"scheduling.k8s.io/{version}" for version in ("v1beta1", "v1alpha3", "v1alpha2"))
ALL_OR_NOTHING: dict[str, Any] = {"v1alpha2": "PodGroup"}
"""How the versions before the present form say that a preemption takes the whole gang."""


def grouping(request: GangRequest) -> Grouping:
    """The PodGroup, and the pods' membership in it."""
    scheduling = request.spec.scheduling
    # Where none is served any more, the API server says so: pods that are placed one by one would be no gang.
    api = request.systems.apis.get(Gang.NATIVE, APIS[0])
    spec: dict[str, Any] = {
        "schedulingPolicy": {"gang": {"minCount": request.spec.nodes}},
        "disruptionMode": ALL_OR_NOTHING.get(api.rpartition("/")[2], {"all": {}}),
    }
    if scheduling.priority_class_name:
        spec["priorityClassName"] = scheduling.priority_class_name
    if key := scheduling.topology.required_key:
        spec["schedulingConstraints"] = {"topology": [{"key": key}]}
    return Grouping(
        group=request.group(api, spec),
        scheduling_group={"podGroupName": request.name},
        near=scheduling.topology,
    )


SYSTEM = System(
    grouping=grouping,
    apis=APIS,
    ignored="the API server dropped schedulingGroup of the pods, so they are placed one by one: is the feature gate "
    "GenericWorkload on in kube-apiserver, and GangScheduling in kube-scheduler?",
)
