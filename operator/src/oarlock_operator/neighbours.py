"""Who else could write into a job's output: looked at before pods are created, so that the trainer need not guess.

Another unfinished job with the same output is a rival. Pods of a job that is gone linger, if they still run and mount the
same output, or hold the names that this job's pods are to have. Both are found by a label that names the output, so that a
thousand jobs in one namespace do not read each other. What lies outside the job's namespace, as another cluster on the
same NFS export, cannot be seen from here: there the fence in the output is what holds.
"""

from __future__ import annotations

from oarlock_api.contract.names import API_VERSION, PLURAL, Label
from oarlock_operator.api_error import NotFound
from oarlock_operator.cluster import Cluster, Json
from oarlock_operator.manifests.ownership import output_mark
from oarlock_operator.observation import Job

ENDED = ("Succeeded", "Failed")


async def rival(cluster: Cluster, job: Job, raw: Json) -> str:
    """Name of an unfinished job with the same output whose turn is before this one's; `raw` is the job as it was read.

    Of two jobs that look at the same time, both with their Services made, at least one sees the other. Raises ApiError.
    """
    services = await cluster.list(f"/api/v1/namespaces/{job.namespace}/services", labelSelector=_others(job))
    found = [await _owner(cluster, job.namespace, service) for service in services]
    rivals = [other["metadata"]["name"] for other in found if other is not None and _turn(other) < _turn(raw)]
    return min(rivals, default="")


async def lingering(cluster: Cluster, job: Job) -> list[str]:
    """Names of pods of other jobs that still run and mount the same output. Raises ApiError."""
    pods = await cluster.list(f"/api/v1/namespaces/{job.namespace}/pods", labelSelector=_others(job))
    return [pod["metadata"]["name"] for pod in pods if (pod.get("status") or {}).get("phase") not in ENDED]


def _others(job: Job) -> str:
    return f"{Label.OUTPUT}={output_mark(job)},{Label.JOB_UID}!={job.uid}"


async def _owner(cluster: Cluster, namespace: str, service: Json) -> Json | None:
    """The unfinished job that a Service belongs to, None where it is finished or on its way out."""
    labels = service["metadata"]["labels"]
    try:
        job = await cluster.get(f"/apis/{API_VERSION}/namespaces/{namespace}/{PLURAL}/{labels[Label.JOB]}")
    except NotFound:
        return None
    over = "completionTime" in (job.get("status") or {}) or "deletionTimestamp" in job["metadata"]
    return None if over or job["metadata"]["uid"] != labels.get(Label.JOB_UID) else job


def _turn(raw: Json) -> tuple[bool, bool, str, str]:
    """Of two jobs that want one output, who has all its pods has it, then who started, who was made first, the name."""
    metadata, status = raw["metadata"], raw.get("status") or {}
    created = any("createdTime" in attempt for attempt in status.get("attempts") or [])
    return (not created, "startTime" not in status, metadata.get("creationTimestamp") or "", metadata["name"])
