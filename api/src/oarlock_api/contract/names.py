"""Names and labels of a job's objects. A name says the attempt, so that two attempts can never be confused."""

from __future__ import annotations

from enum import StrEnum

GROUP = "oarlock.dev"
VERSION = "v1alpha1"
KIND = "TrainingJob"
PLURAL = "trainingjobs"
API_VERSION = f"{GROUP}/{VERSION}"
MAX_NAME_LENGTH = 50
"""A job's name leaves room in a 63-character DNS label for `-<attempt>-<rank>`."""


class Label(StrEnum):
    """Labels on every object of a job."""

    JOB = f"{GROUP}/job"
    JOB_UID = f"{GROUP}/job-uid"
    ATTEMPT = f"{GROUP}/attempt"
    RANK = f"{GROUP}/rank"
    INCARNATION = f"{GROUP}/incarnation"
    """How often the pod of this rank was made within its attempt, from the second on; absent = 1."""
    OUTPUT = f"{GROUP}/output"
    """A hash of the storage and the directory that the job writes to: whoever has the same one is a rival."""


JOB_FILE_ANNOTATION = f"{GROUP}/job"
"""Annotation of every pod that holds its attempt's job.json, which the downward API makes a file of."""
AVOIDED_ANNOTATION = f"{GROUP}/avoided"
"""Annotation of a pod: avoided nodes that it was made to keep off, with commas. Its affinity may name others, too."""
MADE_FROM_ANNOTATION = f"{GROUP}/made-from"
"""Annotation of a pod whose gang may have single pods made anew: a hash of all that its pods are made from."""

ARGO_WORKFLOW_LABEL = "workflows.argoproj.io/workflow"
"""Copied from the job to its pods, so that Argo's own tools find them."""


def pod_name(job: str, attempt: int, rank: int, incarnation: int = 1) -> str:
    """Name of the pod of one rank in one attempt.

    With a letter before the incarnation: without one it could be a first pod of a job whose name ends in a number.
    """
    first = f"{job}-{attempt}-{rank}"
    return first if incarnation == 1 else f"{first}-i{incarnation}"


def host_name(job: str, rank: int) -> str:
    """Hostname of a rank's pod: the same in every attempt, so that addresses in configuration stay valid."""
    return f"{job}-{rank}"


def service_name(job: str) -> str:
    """Name of the headless Service."""
    return job


def group_name(job: str, uid: str, attempt: int) -> str:
    """Name of the group that makes the pods of an attempt a gang, as an object's name and as a label's value.

    With a part of the job's uid: the group of a deleted job of the same name may still be on its way out.
    """
    return f"{job}-{uid[:6]}-{attempt}"
