"""Spare nodes: those that surely have room for one more pod of a gang. Read live, when a gang could leave a marked node."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from oarlock_api.contract.names import API_VERSION, PLURAL
from oarlock_api.history import RecoveryStage
from oarlock_operator.cluster import Cluster
from oarlock_operator.manifests.pod import pod as pod_manifest
from oarlock_operator.observation import Job, Key, Pod
from oarlock_operator.placement import has_room, may_run_on
from oarlock_operator.reasons import Reason

REREAD_SECONDS = 30.0
"""A look reads all nodes, and the pods of those in question: one a job in this time is enough while it waits for a spare."""
MOST_READ = 64
"""Nodes whose pods are read in one look."""
_MOVING = (RecoveryStage.DRAIN, RecoveryStage.SCHEDULE)


@dataclass(slots=True)
class SpareReader:
    """Counts spare nodes. `clock` returns monotonic seconds."""

    cluster: Cluster
    clock: Callable[[], float] = time.monotonic
    _known: dict[Key, tuple[float, int]] = field(default_factory=dict)

    async def read(self, job: Job, pods: tuple[Pod, ...], *, wanted: int) -> int:
        """How many nodes, at most `wanted`, would take a pod of `job` beside those that it has. Raises ApiError.

        0 while another job moves: the spares that it will take cannot be told from free ones yet.
        """
        key = (job.namespace, job.name)
        since, count = self._known.get(key, (0.0, 0))
        if key in self._known and self.clock() - since < REREAD_SECONDS:
            return count
        count = 0 if await self._others_move(job) else await self._count(job, pods, wanted)
        self._known[key] = (self.clock(), count)
        return count

    def forget(self, key: Key) -> None:
        """The job is over or gone."""
        self._known.pop(key, None)

    async def _count(self, job: Job, pods: tuple[Pod, ...], wanted: int) -> int:
        if job.spec is None:
            return 0
        avoided = job.status.avoided_nodes
        manifest = pod_manifest(job, job.spec, attempt=job.status.attempt, rank=0, image="", avoided=avoided)
        own = {pod.node for pod in pods}
        found = read = 0
        for node in await self.cluster.list("/api/v1/nodes"):
            name = node["metadata"]["name"]
            if name in own or not may_run_on(manifest, node) or not has_room(manifest, node, ()):
                continue
            there = await self.cluster.list("/api/v1/pods", fieldSelector=f"spec.nodeName={name}")
            found, read = found + has_room(manifest, node, there), read + 1
            if found == wanted or read == MOST_READ:
                break
        return found

    async def _others_move(self, job: Job) -> bool:
        jobs = await self.cluster.list(f"/apis/{API_VERSION}/{PLURAL}")
        return any(_moves(raw.get("status") or {}) for raw in jobs if raw["metadata"]["uid"] != job.uid)


def _moves(status: dict[str, Any]) -> bool:
    stage = (status.get("recovery") or {}).get("stage")
    return status.get("reason") == Reason.NODE_MARKED and stage in _MOVING
