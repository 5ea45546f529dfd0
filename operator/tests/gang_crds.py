"""What gang systems serve, as far as Oarlock writes it: structural schemas of their kinds, made for these tests.

Hand-written from the systems' own types, and only the fields that the adapters write or read: a field that an adapter
made up is refused, because objects are created with strict validation.
"""

from __future__ import annotations

from typing import Any

TEXT: dict[str, Any] = {"type": "string"}
NUMBER: dict[str, Any] = {"type": "integer", "minimum": 1}
QUANTITIES: dict[str, Any] = {
    "type": "object",
    "additionalProperties": {"anyOf": [{"type": "integer"}, TEXT], "x-kubernetes-int-or-string": True},
}
OPEN: dict[str, Any] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def record(**fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": fields}


def definition(
    group: str, version: str, kind: str, plural: str, spec: dict[str, Any], *, scope: str = "Namespaced"
) -> dict[str, Any]:
    schema = record(spec=spec, status=OPEN)
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{group}",
            # Groups under k8s.io are protected: a CRD there has to say who approved it.
            "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
        },
        "spec": {
            "group": group,
            "scope": scope,
            "names": {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()},
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                    "subresources": {"status": {}},
                }
            ],
        },
    }


VOLCANO = definition(
    "scheduling.volcano.sh",
    "v1beta1",
    "PodGroup",
    "podgroups",
    record(
        minMember=NUMBER,
        minResources=QUANTITIES,
        queue=TEXT,
        priorityClassName=TEXT,
        networkTopology=record(mode={"type": "string", "enum": ["hard", "soft"]}, highestTierName=TEXT),
    ),
)
COSCHEDULING = definition(
    "scheduling.x-k8s.io", "v1alpha1", "PodGroup", "podgroups", record(minMember=NUMBER, minResources=QUANTITIES)
)
KAI = definition(
    "scheduling.run.ai",
    "v2alpha2",
    "PodGroup",
    "podgroups",
    record(
        minMember=NUMBER,
        queue=TEXT,
        priorityClassName=TEXT,
        topologyConstraint=record(topology=TEXT, requiredTopologyLevel=TEXT, preferredTopologyLevel=TEXT),
    ),
)
TOPOLOGY = definition("kai.scheduler", "v1alpha1", "Topology", "topologies", OPEN, scope="Cluster")
LOCAL_QUEUE = definition("kueue.x-k8s.io", "v1beta2", "LocalQueue", "localqueues", record(clusterQueue=TEXT))
FLAVOR = definition("kueue.x-k8s.io", "v1beta2", "ResourceFlavor", "resourceflavors", OPEN, scope="Cluster")
CLUSTER_QUEUE = definition("kueue.x-k8s.io", "v1beta2", "ClusterQueue", "clusterqueues", OPEN, scope="Cluster")
WORKLOAD = definition("kueue.x-k8s.io", "v1beta2", "Workload", "workloads", OPEN)
ALL = (VOLCANO, COSCHEDULING, KAI, LOCAL_QUEUE, FLAVOR, CLUSTER_QUEUE, WORKLOAD)

GATE, MANAGED, QUEUE = "kueue.x-k8s.io/admission", "kueue.x-k8s.io/managed", "kueue.x-k8s.io/queue-name"
LIKE_KUEUE = [
    {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": "like-kueue"},
        "spec": {
            "matchConstraints": {
                "resourceRules": [
                    {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
                ]
            },
            "matchConditions": [
                {
                    "name": "queued",
                    "expression": f"has(object.metadata.labels) && '{QUEUE}' in object.metadata.labels && "
                    f"object.metadata.labels['{QUEUE}'] != 'nobodys'",
                }
            ],
            "failurePolicy": "Fail",
            "reinvocationPolicy": "Never",
            "mutations": [
                {
                    "patchType": "ApplyConfiguration",
                    "applyConfiguration": {
                        "expression": f"Object{{metadata: Object.metadata{{labels: {{'{MANAGED}': 'true'}}}}, "
                        f"spec: Object.spec{{schedulingGates: [Object.spec.schedulingGates{{name: '{GATE}'}}]}}}}"
                    },
                }
            ],
        },
    },
    {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": "like-kueue"},
        "spec": {"policyName": "like-kueue"},
    },
]
"""What Kueue's webhook does to pods that name a queue (but `nobodys`), as a policy of the API server."""
