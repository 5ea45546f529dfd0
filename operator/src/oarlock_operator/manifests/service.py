"""The headless Service of a job of several nodes: it names rank 0 of one attempt, at which the ranks meet.

Rank 0 alone where nobody asks for the others: each address of a Service is written anew, for every node of the cluster to
read, whenever one of its pods changes. Where nodes keep copies of each other's state in memory, each is asked for.
"""

from __future__ import annotations

from typing import Any

from oarlock_api.contract.environment import RENDEZVOUS_PORT
from oarlock_api.contract.names import Label, service_name
from oarlock_api.contract.rounds import InPlace
from oarlock_api.spec import TrainingJobSpec
from oarlock_operator.manifests.ownership import job_labels, owner_reference
from oarlock_operator.model.observation import Job


def selector(job: Job, attempt: int, incarnation: int = 1) -> dict[str, str]:
    """The pods of one attempt that have a name. From its second `incarnation` on, that of rank 0 alone.

    So the name at which the ranks meet never has the address of a pod that may still run, and that of the next one.
    """
    pods = {Label.JOB_UID.value: job.uid, Label.ATTEMPT.value: str(attempt)}
    if incarnation > 1:
        return pods | {Label.RANK.value: "0", Label.INCARNATION.value: str(incarnation)}
    return pods if names_all(job.spec) else pods | {Label.RANK.value: "0"}


def names_all(spec: TrainingJobSpec | None) -> bool:
    """Whether each pod has a name: its neighbour asks it for its state in memory."""
    recovery = spec.recovery if spec else None
    return recovery is not None and recovery.in_place is InPlace.AUTO and str(recovery.memory.every_steps) != "0"


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
