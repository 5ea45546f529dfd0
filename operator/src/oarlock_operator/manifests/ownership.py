"""What ties an object to its job: labels to find it by, an owner reference so that it goes with it."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from oarlock_api.contract.names import API_VERSION, ARGO_WORKFLOW_LABEL, KIND, Label
from oarlock_api.output import Output
from oarlock_operator.model.observation import Job

MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGER = "oarlock"


def job_labels(job: Job) -> dict[str, str]:
    """Labels of every object of a job."""
    labels = {Label.JOB.value: job.name, Label.JOB_UID.value: job.uid, MANAGED_BY: MANAGER}
    if job.spec is not None:
        labels[Label.OUTPUT.value] = output_mark(job)
    if workflow := job.labels.get(ARGO_WORKFLOW_LABEL):
        labels[ARGO_WORKFLOW_LABEL] = workflow
    return labels


def output_mark(job: Job) -> str:
    """A label's value that two jobs of one namespace share exactly if they write to the same place."""
    if job.spec is None:
        raise ValueError("a job that cannot be read has no output")
    return mark_of(job.spec.output, job.name)


def mark_of(output: Output, job_name: str) -> str:
    """The mark of a job's output, of which only that is known."""
    said = output.to_manifest()
    place = [said.get("persistentVolumeClaim"), said.get("nfs"), said.get("directory") or job_name]
    return hashlib.sha256(json.dumps(place, sort_keys=True).encode()).hexdigest()[:32]


def owner_reference(job: Job) -> dict[str, Any]:
    """The job as controller: the garbage collector removes the object with it."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": job.name,
        "uid": job.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
