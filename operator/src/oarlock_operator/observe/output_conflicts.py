"""Who else could write into a job's output: looked at before pods are created, so that the trainer need not guess.

Another unfinished job with the same output is a rival. Pods of a job that is gone linger, if they still run and mount the
same output, or hold the names that this job's pods are to have. The operator's memory (outputs.py) says who might; those are
read. What lies outside the job's namespace, as another cluster on the same NFS export, cannot be seen from here: there the
fence in the output is what holds.
"""

from __future__ import annotations

from oarlock_api.contract.names import API_VERSION, PLURAL, Label
from oarlock_operator.kube.api_error import NotFound
from oarlock_operator.kube.cluster import Cluster, Json
from oarlock_operator.manifests.ownership import output_mark
from oarlock_operator.model.observation import Job
from oarlock_operator.observe.outputs import ENDED, Outputs


async def rival(cluster: Cluster, job: Job, raw: Json, outputs: Outputs) -> str:
    """Name of an unfinished job with the same output whose turn is before this one's; `raw` is the job as it was read.

    Of two jobs that look at the same time, both begun, at least one sees the other. Raises ApiError.
    """
    found = [await _begun(cluster, job.namespace, name, outputs) for name in outputs.others(job)]
    rivals = [other["metadata"]["name"] for other in found if other is not None and _turn(other) < _turn(raw)]
    return min(rivals, default="")


async def lingering(cluster: Cluster, job: Job, outputs: Outputs) -> dict[str, bool]:
    """Names of pods of other jobs that still run and mount the same output, and whether each is left for good.

    It is where it has no owner, as after `kubectl delete --cascade=orphan` or a backup that strips owners: nobody deletes it.
    Raises ApiError.
    """
    if not outputs.may_linger(job):
        return {}
    others = f"{Label.OUTPUT}={output_mark(job)},{Label.JOB_UID}!={job.uid}"
    pods = await cluster.list(f"/api/v1/namespaces/{job.namespace}/pods", labelSelector=others)
    alive = [pod["metadata"] for pod in pods if (pod.get("status") or {}).get("phase") not in ENDED]
    return {one["name"]: not one.get("ownerReferences") and "deletionTimestamp" not in one for one in alive}


async def _begun(cluster: Cluster, namespace: str, name: str, outputs: Outputs) -> Json | None:
    """The job of that name; None where it has not begun, is finished or on its way out."""
    try:
        job = await cluster.get(f"/apis/{API_VERSION}/namespaces/{namespace}/{PLURAL}/{name}")
    except NotFound:
        outputs.forget_job((namespace, name))
        return None
    status = job.get("status") or {}
    over = "completionTime" in status or "deletionTimestamp" in job["metadata"]
    return None if over or not status.get("attempt") else job


def _turn(raw: Json) -> tuple[bool, bool, str, str]:
    """Of two jobs that want one output, who has all its pods has it, then who started, who was made first, the name."""
    metadata, status = raw["metadata"], raw.get("status") or {}
    created = any("createdTime" in attempt for attempt in status.get("attempts") or [])
    return (not created, "startTime" not in status, metadata.get("creationTimestamp") or "", metadata["name"])
