"""Spare nodes: those that surely have room for a pod of a gang. Read live, when a gang could leave a node, or find one.

A job's own spares (spec.spares) are pods of its gang. Nothing waits for a node of theirs, and their own nodes have room.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

import structlog
from msgspec import Struct

from oarlock_api.history import RecoveryStage
from oarlock_api.spec import OPERATOR, TrainingJobSpec
from oarlock_operator.kube.api_error import ApiError
from oarlock_operator.kube.cluster import Cluster, Json
from oarlock_operator.kube.job_paths import job_collections
from oarlock_operator.manifests.pod import pod as pod_manifest
from oarlock_operator.model.job_memory import JobMemory
from oarlock_operator.model.observation import Job, Pod, gang_size, standing_by
from oarlock_operator.model.reasons import Reason
from oarlock_operator.nodes.node_facts import PlacementFacts
from oarlock_operator.nodes.placement import has_room, may_run_on
from oarlock_operator.pods.pod_facts import Metadata

log = structlog.get_logger(__name__)

REREAD_SECONDS = 30.0
"""A look lists all nodes and jobs, and the pods of some nodes: one in this time is enough for a job that waits."""
MOST_READ = 64
"""Nodes whose pods are read in one look; drawn by chance, so that none is left out for ever."""

_WAITING = (Reason.GANG_UNAVAILABLE, Reason.WAITING_FOR_PREDECESSOR)
_WITHOUT_A_NODE = (Reason.UNSCHEDULABLE, Reason.NOT_ENOUGH_HEALTHY_NODES)


class _Recovery(Struct, frozen=True):
    stage: str | None = None
    surging: tuple[Json, ...] = ()


class _Spec(Struct, frozen=True, rename="camel"):
    suspend: bool = False
    managed_by: str = OPERATOR


class _Status(Struct, frozen=True, rename="camel"):
    attempt: int = 0
    reason: str | None = None
    completion_time: datetime | None = None
    recovery: _Recovery = _Recovery()


class _Job(Struct, frozen=True):
    """What tells whether a job is after nodes."""

    metadata: Metadata
    spec: _Spec = _Spec()
    status: _Status = _Status()


@dataclass(slots=True)
class SpareReader:
    """Looks for spare nodes. `clock` returns monotonic seconds."""

    cluster: Cluster
    clock: Callable[[], float] = time.monotonic

    async def enough(
        self, job: Job, pods: Sequence[Pod], memory: JobMemory, *, leaving: frozenset[str] = frozenset()
    ) -> bool:
        """Whether other nodes surely take the pods of `job` that have no node, or one that would not take them again.

        Nor are pods to stay on one of `leaving`, or to come to it. No where all would be taken again: a mark that this
        process still sees may have been taken back since.

        No while another job looks for nodes: which ones it will take cannot be told. A no holds for a while, a yes is asked
        for anew each time, since whoever moves in between takes what it found. A look that fails is a no.
        """
        if self.clock() - memory.no_spares_at < REREAD_SECONDS:
            return False
        try:
            if not await self._others_need_nodes(job) and await self._found(job, pods, leaving):
                return True
        except ApiError as error:
            log.warning("spare nodes could not be looked for", namespace=job.namespace, job=job.name, error=str(error))
        memory.no_spares_at = self.clock()
        return False

    async def _found(self, job: Job, pods: Sequence[Pod], leaving: frozenset[str]) -> bool:
        if job.spec is None:
            return False
        manifest = await self._wanted(job, job.spec, pods)
        own = {pod.node for pod in pods if pod.attempt == job.status.attempt and pod.node and not pod.stopped}
        fit: dict[str, Json] = {}
        async for page in self.cluster.pages_of(PlacementFacts, "/api/v1/nodes"):
            found = (node.as_json() for node in page.items)
            fit |= {node["metadata"]["name"]: node for node in found if may_run_on(manifest, node)}
        fit = {name: node for name, node in fit.items() if name not in leaving}
        number = job.status.attempt
        needed = set(range(gang_size(job.spec, job.status, number))) - standing_by(job.status, number)
        stays = {pod.rank for pod in pods if pod.attempt == number and pod.node in fit and not pod.stopped}
        if needed <= stays:
            return False
        # A surge pod that has no node yet takes one.
        waits = sum(pod.rank in stays and not (pod.node or pod.stopped) for pod in pods if pod.attempt == number)
        missing = max(0, job.spec.nodes - len(stays)) + waits
        candidates = [node for name, node in fit.items() if name not in own and has_room(manifest, node, ())]
        for node in random.sample(candidates, min(len(candidates), MOST_READ)):
            if missing == 0:
                break
            missing -= has_room(manifest, node, await self._pods_on(node))
        return missing == 0

    async def _wanted(self, job: Job, spec: TrainingJobSpec, pods: Sequence[Pod]) -> Json:
        """A pod of the gang as it would be made now.

        What a RuntimeClass adds to it (a node selector, tolerations, an overhead) is read from a pod that is there.
        """
        number = job.status.attempt
        manifest = pod_manifest(job, spec, attempt=number, rank=0, image="", avoided=job.status.avoided_nodes)
        made = next((pod.name for pod in pods if pod.attempt == number and not pod.gone), None)
        if made is None or not manifest["spec"].get("runtimeClassName"):
            return manifest
        admitted = (await self.cluster.get(f"/api/v1/namespaces/{job.namespace}/pods/{made}"))["spec"]
        off = manifest["spec"].get("affinity") or {}
        return {**manifest, "spec": {**admitted, "affinity": off, "runtimeClassName": None}}

    async def _pods_on(self, node: Json) -> list[Json]:
        return await self.cluster.list("/api/v1/pods", fieldSelector=f"spec.nodeName={node['metadata']['name']}")

    async def _others_need_nodes(self, job: Job) -> bool:
        jobs = await self.cluster.list_of(_Job, job_collections(())[0])
        return any(_needs_nodes(other) for other in jobs if other.metadata.uid != job.uid)


def _needs_nodes(job: _Job) -> bool:
    """Whether a job may soon take nodes that look free. One that the scheduler found no node for cannot take these.

    Nor can one that waits for its queue, its gang system or its predecessor, or that is another controller's: for how long,
    nobody knows. A surge pod may not have its node yet.
    """
    if job.metadata.deletion_timestamp or job.spec.suspend or job.spec.managed_by != OPERATOR:
        return False
    status, stage = job.status, job.status.recovery.stage
    if status.recovery.surging:
        return True
    if status.attempt == 0 or stage == RecoveryStage.SUSPENDED:
        return status.completion_time is None and status.reason not in _WAITING
    return stage == RecoveryStage.DRAIN or (stage == RecoveryStage.SCHEDULE and status.reason not in _WITHOUT_A_NODE)
