"""Gang systems' kinds for API servers of tests, by their own definitions: a field that an adapter made up is refused.

Of KAI, whose source cannot be had as a Go module, the fields that Oarlock writes are written down here.
"""

from __future__ import annotations

from typing import Any

from oarlock_local import definitions

TEXT: dict[str, Any] = {"type": "string"}
OPEN: dict[str, Any] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
QUEUED = ("ClusterQueue", "LocalQueue", "ResourceFlavor", "Workload")
"""Kinds of Kueue that the operator or an example names; an API server takes seconds for all of them."""


def served() -> list[dict[str, Any]]:
    """The definitions of every system's kinds. Raises SourceMissing where a source cannot be had."""
    kueue = [each for each in definitions.kueue() if each["spec"]["names"]["kind"] in QUEUED]
    return [*definitions.volcano(), *definitions.coscheduling(), KAI, *kueue]


def record(**fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": fields}


def definition(
    group: str, version: str, kind: str, spec: dict[str, Any], *, plural: str, scope: str = "Namespaced"
) -> dict[str, Any]:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": scope,
            "names": {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()},
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": record(spec=spec, status=OPEN)},
                    "subresources": {"status": {}},
                }
            ],
        },
    }


KAI = definition(
    "scheduling.run.ai",
    "v2alpha2",
    "PodGroup",
    record(
        minMember={"type": "integer", "minimum": 0},
        queue=TEXT,
        priorityClassName=TEXT,
        topologyConstraint=record(topology=TEXT, requiredTopologyLevel=TEXT, preferredTopologyLevel=TEXT),
    ),
    plural="podgroups",
)
TOPOLOGY = definition("kai.scheduler", "v1alpha1", "Topology", OPEN, plural="topologies", scope="Cluster")

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
