"""The headless Service of a job of several nodes: it names rank 0 of one attempt, at which the ranks meet.

Rank 0 alone: the others are asked for by nobody, and each address of a Service is written anew, for every node of the
cluster to read, whenever one of its pods changes.
"""

from __future__ import annotations

from typing import Any

from oarlock_api.contract.environment import RENDEZVOUS_PORT
from oarlock_api.contract.names import Label, service_name
from oarlock_api.spec import TrainingJobSpec
from oarlock_operator.manifests.ownership import job_labels, owner_reference
from oarlock_operator.model.observation import Job


def selector(job: Job, attempt: int, incarnation: int = 1) -> dict[str, str]:
    """Rank 0 of one attempt, and of those the one that was made last: a name never has an old and a new address at once."""
    first = {Label.JOB_UID.value: job.uid, Label.ATTEMPT.value: str(attempt), Label.RANK.value: "0"}
    return first if incarnation == 1 else first | {Label.INCARNATION.value: str(incarnation)}


def needs_service(spec: TrainingJobSpec) -> bool:
    """Whether the ranks of a job are on several nodes, and so need a name to meet at; those of one do not."""
    return spec.nodes > 1


def service(job: Job, attempt: int) -> dict[str, Any]:
    """The Service of a job."""
    port = job.spec.pod.ports.rendezvous if job.spec else RENDEZVOUS_PORT
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": service_name(job.name),
            "namespace": job.namespace,
            "labels": job_labels(job),
            "ownerReferences": [owner_reference(job)],
        },
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": selector(job, attempt),
            "ports": [{"name": "rendezvous", "port": port, "protocol": "TCP"}],
        },
    }
