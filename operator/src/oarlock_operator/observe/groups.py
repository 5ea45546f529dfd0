"""The groups of a job as they are now: those that the operator made, and the Workload that Kueue made."""

from __future__ import annotations

from collections.abc import Iterable

import structlog

from oarlock_api.contract.names import Label, group_name
from oarlock_api.history import RecoveryStage
from oarlock_api.scheduling import Gang
from oarlock_operator.kube.api_error import ApiError, NotFound
from oarlock_operator.kube.cluster import Cluster, Json
from oarlock_operator.model.job_memory import JobMemory
from oarlock_operator.model.observation import GangSystems, Group, Job
from oarlock_operator.schedulers import SYSTEMS, system_of

log = structlog.get_logger(__name__)

FORBIDDEN = 403


async def read_groups(cluster: Cluster, job: Job, systems: GangSystems) -> tuple[Group, ...]:
    """Groups of the system that the job was started with; none where they may not be read. Raises ApiError.

    A Workload only has words: one that cannot be read, as where Kueue's conversion does not answer, holds nothing up.
    """
    gang = Gang((job.status.resolved.gang if job.status.resolved else None) or Gang.NONE)
    api = systems.apis.get(gang, "")
    if not api:
        return ()
    path = f"/apis/{api}/namespaces/{job.namespace}"
    try:
        if gang is Gang.KUEUE:
            name = group_name(job.name, job.uid, job.status.attempt)
            return (_group(await cluster.get(f"{path}/workloads/{name}"), gang, api, job.status.attempt),)
        found = await cluster.list(f"{path}/{SYSTEMS[gang].resource}", labelSelector=f"{Label.JOB_UID.value}={job.uid}")
    except ApiError as error:
        if isinstance(error, NotFound) or error.status == FORBIDDEN:
            # Creating one says more, to people, than reading none could.
            return ()
        if gang is not Gang.KUEUE:
            raise
        log.warning("a Workload could not be read", namespace=job.namespace, job=job.name, error=str(error))
        return ()
    return tuple(_group(raw, gang, api, _attempt(raw)) for raw in found)


def _group(raw: Json, gang: Gang, api: str, attempt: int) -> Group:
    return Group(
        name=raw["metadata"]["name"],
        uid=raw["metadata"]["uid"],
        attempt=attempt,
        api=api,
        ours=SYSTEMS[gang].makes_groups,
        deleting="deletionTimestamp" in raw["metadata"],
        waits=SYSTEMS[gang].waits(raw),
        let_in=SYSTEMS[gang].let_in(raw),
    )


def _attempt(raw: Json) -> int:
    value = (raw["metadata"].get("labels") or {}).get(Label.ATTEMPT.value, "")
    return int(value) if value.isdecimal() else 0


def are_settled(job: Job, memory: JobMemory) -> bool:
    """Whether the job had no group left but the one that it uses, when groups were last listed: no need to list again.

    The group of a pod that nobody could stop stays until the pod has gone, which may be hours after the recovery. A process
    that starts anew lists once for each job.
    """
    return not system_of(job.status.resolved).makes_groups or memory.groups_settled == _state(job)


def note_groups(job: Job, groups: Iterable[Group], memory: JobMemory) -> None:
    """These groups were found."""
    attempt, ended = _state(job)
    left = any(not group.deleting and (ended or group.attempt != attempt) for group in groups)
    memory.groups_settled = None if left else (attempt, ended)


def _state(job: Job) -> tuple[int, bool]:
    status = job.status
    return status.attempt, status.completion_time is not None or status.recovery.stage == RecoveryStage.SUSPENDED
