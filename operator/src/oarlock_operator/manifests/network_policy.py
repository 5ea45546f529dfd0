"""The NetworkPolicy of a job: its pods talk to each other, and nobody else talks to them but to their status port.

For jobs of several nodes, whose ranks trust whoever reaches them; a pod in the node's network is beyond any policy. What the
pods themselves reach is not limited.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from oarlock_api.contract.names import Label
from oarlock_api.pod import NetworkPolicy
from oarlock_api.spec import TrainingJobSpec
from oarlock_operator.manifests.ownership import job_labels, owner_reference
from oarlock_operator.model.observation import Job


def network_policy(
    job: Job, spec: TrainingJobSpec, *, status_from: Sequence[dict[str, Any]] | None
) -> dict[str, Any] | None:
    """The policy of a job; None where it is to have none. `status_from`: who reaches the status port, empty for everybody.

    None there: this operator makes no policies.
    """
    wanted = spec.pod.network_policy is NetworkPolicy.AUTO and spec.nodes > 1 and not spec.pod.host_network
    if status_from is None or not wanted:
        return None
    its_pods = {"podSelector": {"matchLabels": {Label.JOB_UID.value: job.uid}}}
    status: dict[str, Any] = {"ports": [{"protocol": "TCP", "port": spec.pod.ports.status}]}
    if status_from:
        status["from"] = list(status_from)
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {
            "name": f"{job.name}-{job.uid[:6]}",
            "namespace": job.namespace,
            "labels": job_labels(job),
            "ownerReferences": [owner_reference(job)],
        },
        # All ports between them: gloo and NCCL take any.
        "spec": {**its_pods, "policyTypes": ["Ingress"], "ingress": [{"from": [its_pods]}, status]},
    }
