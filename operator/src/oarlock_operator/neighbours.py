"""Who else could write into a job's output: looked at before pods are created, so that the trainer need not guess.

Another unfinished job with the same output is a rival. Pods of a job that is gone linger, if they still run and mount the
same output, or hold the names that this job's pods are to have. What lies outside the job's namespace, as another cluster
on the same NFS export, cannot be seen from here: there the fence in the output is what holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from oarlock_api.contract.environment import Variable
from oarlock_api.contract.names import API_VERSION, PLURAL, Label
from oarlock_operator.cluster import Cluster, Json
from oarlock_operator.manifests.config import output_directory
from oarlock_operator.manifests.ownership import MANAGED_BY, MANAGER
from oarlock_operator.manifests.volumes import OUTPUT, output_source
from oarlock_operator.observation import Job


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Names of an unfinished job with the same output (empty: none), and of lingering pods."""

    rival: str = ""
    lingering: tuple[str, ...] = ()


async def neighbours(cluster: Cluster, job: Job) -> Neighbours:
    """Look around in the job's namespace. Raises ApiError."""
    if job.spec is None:
        return Neighbours()
    storage, directory = output_source(job.spec.output), output_directory(job, job.spec)
    jobs = await cluster.list(f"/apis/{API_VERSION}/namespaces/{job.namespace}/{PLURAL}")
    pods = await cluster.list(f"/api/v1/namespaces/{job.namespace}/pods", labelSelector=f"{MANAGED_BY}={MANAGER}")
    mine = next((_turn(raw) for raw in jobs if raw["metadata"]["uid"] == job.uid), None)
    rivals = [
        raw["metadata"]["name"]
        for raw in jobs
        if raw["metadata"]["uid"] != job.uid
        and "completionTime" not in (raw.get("status") or {})
        and "deletionTimestamp" not in raw["metadata"]
        and (mine is None or _turn(raw) < mine)
        and _writes_to(raw, storage, job.spec.output.directory or job.name)
    ]
    lingering = [
        pod["metadata"]["name"]
        for pod in pods
        if (labels := pod["metadata"].get("labels") or {}).get(Label.JOB_UID) != job.uid
        and (labels.get(Label.JOB) == job.name or _mounts(pod, storage, directory))
    ]
    return Neighbours(rival=min(rivals, default=""), lingering=tuple(sorted(lingering)))


def _turn(raw: Json) -> tuple[bool, str, str]:
    """Of two jobs that want one output, who has started has it, then who was made first, then the name decides."""
    metadata = raw["metadata"]
    started = (raw.get("status") or {}).get("startTime") is not None
    return (not started, metadata.get("creationTimestamp") or "", metadata["name"])


def _writes_to(raw: Json, storage: Json, directory: str) -> bool:
    """Whether a job, as it is written, has this output."""
    output: dict[str, Any] = (raw.get("spec") or {}).get("output") or {}
    same_claim = output.get("persistentVolumeClaim") == storage.get("persistentVolumeClaim")
    same_export = output.get("nfs") == storage.get("nfs")
    return same_claim and same_export and (output.get("directory") or raw["metadata"]["name"]) == directory


def _mounts(pod: Json, storage: Json, directory: str) -> bool:
    """Whether a pod that has not ended has this output."""
    spec = pod.get("spec") or {}
    if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return False
    volume: Json = next((item for item in spec.get("volumes") or [] if item.get("name") == OUTPUT), {})
    env = [item for container in spec.get("containers") or [] for item in container.get("env") or []]
    writes = any(item.get("name") == Variable.OUTPUT_DIR and item.get("value") == directory for item in env)
    return writes and all(volume.get(kind) == source for kind, source in storage.items())
