"""Pods of a job that no list names any more, and that run all the same: whoever takes our label off one only hides it.

A watch says that such a pod was deleted, and to believe it would start a second gang beside it. So a pod that may still run
is looked up by its name, which is always the same, before it counts as gone; the answer that it is, is remembered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from oarlock_api.contract.names import Label, pod_name
from oarlock_api.history import RecoveryStage
from oarlock_operator.kube.api_error import NotFound
from oarlock_operator.kube.cluster import Cluster, Json
from oarlock_operator.model.observation import Job, gang_size
from oarlock_operator.pods.pod_facts import Metadata, Owner, PodSpec, RawPod
from oarlock_operator.pods.terminated_pods import TerminatedPods

PARALLEL = 16
_ENDING = {RecoveryStage.STOPPING, RecoveryStage.SUSPENDING, RecoveryStage.SUSPENDED}


async def find_strays(
    cluster: Cluster, job: Job, listed: Sequence[RawPod], departed: Sequence[RawPod], terminated: TerminatedPods
) -> list[RawPod]:
    """Pods of the job that are there though `listed` does not name them. Raises ApiError."""
    gate = asyncio.Semaphore(PARALLEL)

    async def look(expected: Metadata) -> RawPod | None:
        async with gate:
            return await _find(cluster, job, expected)

    hidden = [pod.metadata for pod in departed if _may_run(pod) and not terminated.is_gone(pod.metadata.uid)]
    wanted = [*hidden, *_unheard_of(job, [*listed, *departed])]
    found = await asyncio.gather(*(look(expected) for expected in wanted))
    terminated.note_gone(expected.uid for expected, pod in zip(wanted, found, strict=True) if expected.uid and not pod)
    return [pod for pod in found if pod is not None]


def _may_run(pod: RawPod) -> bool:
    """Whether it was last seen with a node and alive, and not on its way out: only by force would it be gone at once."""
    over = pod.state.terminated is not None or pod.status.phase in ("Failed", "Succeeded")
    return bool(pod.spec.node_name) and not over and pod.metadata.deletion_timestamp is None


def _unheard_of(job: Job, known: Sequence[RawPod]) -> list[Metadata]:
    """Pods of the current attempt of which neither a list nor a watch tells, once all of them had been made."""
    status, spec = job.status, job.spec
    made = any(one.number == status.attempt and one.created_time is not None for one in status.attempts)
    over = job.deleting or status.completion_time is not None or status.recovery.stage in _ENDING
    if spec is None or over or not made:
        return []
    wanted = {one.rank: one.incarnation for one in status.recovery.replacing}
    here = {
        rank
        for pod in known
        if pod.number(Label.ATTEMPT) == status.attempt
        and (pod.number(Label.INCARNATION) or 1) >= wanted.get(rank := pod.number(Label.RANK), 1)
    }
    most = max((one.incarnation for one in status.attempts if one.number == status.attempt), default=1)
    return [
        _expected(job, rank, incarnation)
        for rank in range(gang_size(spec, status, status.attempt))
        if rank not in here
        for incarnation in ((wanted[rank],) if rank in wanted else range(1, most + 1))
    ]


def _expected(job: Job, rank: int, incarnation: int) -> Metadata:
    attempt = job.status.attempt
    labels = {Label.ATTEMPT.value: str(attempt), Label.RANK.value: str(rank)}
    if incarnation > 1:
        labels[Label.INCARNATION.value] = str(incarnation)
    return Metadata(name=pod_name(job.name, attempt, rank, incarnation), labels=labels)


async def _find(cluster: Cluster, job: Job, expected: Metadata) -> RawPod | None:
    """The pod of that name, if it is the job's, with the labels that it had, or should have."""
    try:
        raw = await cluster.get(f"/api/v1/namespaces/{job.namespace}/pods/{expected.name}")
    except NotFound:
        return None
    pod = _read(raw, expected)
    if not pod.owned_by(job.uid) or expected.uid not in ("", pod.metadata.uid):
        return None
    return replace(
        pod, metadata=replace(pod.metadata, labels={**(pod.metadata.labels or {}), **(expected.labels or {})})
    )


def _read(raw: Json, expected: Metadata) -> RawPod:
    try:
        return msgspec.convert(raw, RawPod)
    except msgspec.ValidationError:
        # It is there: more cannot be said of it, and no list names it because it cannot be read.
        owners = tuple(Owner(uid=str(one.get("uid"))) for one in raw["metadata"].get("ownerReferences") or ())
        node = (raw.get("spec") or {}).get("nodeName")
        known = Metadata(name=expected.name, uid=str(raw["metadata"].get("uid")), owner_references=owners)
        return RawPod(known, PodSpec(node_name=node if isinstance(node, str) else None))
