"""What every webhook message has: its type, how much it matters, who tells, and what it is recognised by. Pure."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from oarlock_api.contract.names import pod_name

if TYPE_CHECKING:
    from oarlock_api.contract.webhooks import WebhookLevel
    from oarlock_trainer.runtime.assignment import Assignment

SCHEMA_VERSION = 1

GPU_FAULT = "gpu.fault"
STAGE = "lifecycle.stage"
STATUS = "training.status"
CHECKPOINT = "training.checkpoint"
PROGRESS = "training.progress"
SUMMARY = "training.summary"
ERROR = "error"
TYPES = (GPU_FAULT, STAGE, STATUS, CHECKPOINT, PROGRESS, SUMMARY, ERROR)


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who tells. `job_id` is what an orchestrator knows the run as; `rank` is the node's."""

    job_id: str
    job: str
    namespace: str
    job_uid: str
    attempt: int
    rank: int
    node: str
    pod: str

    @property
    def tells_life(self) -> bool:
        """Whether this pod tells of the run's life. All pods would say the same; their faults are their own."""
        return self.rank == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookEvent:
    """One thing to be told."""

    type: str
    level: WebhookLevel
    payload: dict[str, Any]


def identity_of(assignment: Assignment, job_id: str = "") -> Identity:
    """Who this pod is. Without a `job_id` of the user's own, the job's name is it."""
    pod, job = assignment.pod, assignment.job
    return Identity(
        job_id=job_id or job.job,
        job=job.job,
        namespace=job.namespace,
        job_uid=job.job_uid,
        attempt=job.attempt,
        rank=pod.rank,
        node=pod.node,
        pod=pod_name(job.job, job.attempt, pod.rank),
    )


def event(
    identity: Identity,
    at: str,
    *,
    type_: str,
    level: WebhookLevel,
    title: str,
    message: str,
    step: int | None,
    about: tuple[object, ...],
    body: dict[str, Any],
) -> WebhookEvent:
    """What all payloads have, and `body`. `about` tells this event from others of its type within the attempt.

    The same event has the same dedupe_id however often it is sent.
    """
    known = (identity.job_uid, identity.attempt, identity.rank, type_, *about)
    payload = {
        "type": type_,
        "severity": level.lower(),
        "job_id": identity.job_id,
        "title": title,
        "message": message,
        "timestamp": at,
        "schema_version": SCHEMA_VERSION,
        "dedupe_id": hashlib.sha256("\0".join(map(str, known)).encode(errors="replace")).hexdigest()[:32],
        "job": identity.job,
        "namespace": identity.namespace,
        "job_uid": identity.job_uid,
        "attempt": identity.attempt,
        "rank": identity.rank,
        "node": identity.node,
        "pod": identity.pod,
        "step": step,
        **body,
    }
    return WebhookEvent(type=type_, level=level, payload=payload)
