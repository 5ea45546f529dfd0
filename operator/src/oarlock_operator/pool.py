"""The pool: the nodes that a gang could run on, which of them are cordoned, and by whom. Read live, when a brake asks."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from oarlock_api.contract.wire import text
from oarlock_operator import metrics
from oarlock_operator.api_error import Conflict, NotFound
from oarlock_operator.cluster import Cluster, Json
from oarlock_operator.events import EventPoster
from oarlock_operator.observation import Brakes, CordonMark, Job, Pool
from oarlock_operator.plan import Event, EventType
from oarlock_operator.reasons import Reason

CORDONED = "oarlock.dev/cordoned"
"""Annotation of a node that Oarlock cordoned: who, why, when, on what evidence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolReader:
    """Reads the pool, and cordons in it. `namespace`: where the breaker's ConfigMap lies; `events` tells of nodes."""

    cluster: Cluster
    namespace: str
    brakes: Brakes
    events: EventPoster | None = None
    done: set[tuple[str, str]] = field(default_factory=set)
    """Nodes that this process has cordoned, with their marks."""

    async def read(self, job: Job) -> Pool:
        """The pool of nodes that have what the job's pods ask for. Raises ApiError."""
        if job.spec is None:
            raise ValueError("a job that cannot be read has no pool")
        resource = job.spec.pod.gpu_resource if job.spec.gpus_per_node else "cpu"
        nodes = [node for node in await self.cluster.list("/api/v1/nodes") if _has(node, resource)]
        marks = [mark for node in nodes if (mark := read_mark(node)) is not None]
        off = frozenset(node["metadata"]["name"] for node in nodes if (node.get("spec") or {}).get("unschedulable"))
        return Pool(
            size=len(nodes),
            schedulable=sum(is_ready(node) for node in nodes if node["metadata"]["name"] not in off),
            unschedulable=off,
            ours=tuple(marks),
            latched=await self._latched(),
            brakes=self.brakes,
        )

    async def cordon(self, node: str, mark: str) -> bool:
        """Cordon `node` and mark it as ours, in one write; whether this call did. Raises ApiError.

        One that is cordoned already stays whosever it is. Done once for each mark: a person who uncordons the node while
        the recovery still repeats its plan has the last word.
        """
        path = f"/api/v1/nodes/{node}"
        if (node, mark) in self.done:
            return False
        try:
            there = await self.cluster.get(path)
            free = not (there.get("spec") or {}).get("unschedulable")
            if free:
                metadata = {"resourceVersion": there["metadata"]["resourceVersion"], "annotations": {CORDONED: mark}}
                await self.cluster.merge(path, {"metadata": metadata, "spec": {"unschedulable": True}})
                metrics.CORDONS.inc()
                self._tell(there, mark)
        except NotFound:
            return False
        self.done.add((node, mark))
        return free

    def _tell(self, node: Json, mark: str) -> None:
        """The Event that `kubectl describe node` shows to whoever wonders why."""
        if self.events is None:
            return
        name, written = node["metadata"]["name"], json.loads(mark)
        words = f"cordoned by Oarlock for {written['job']}, attempt {written['attempt']}: {written['reason']}"
        about = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": name}  # as the kubelet's own Events name it
        event = Event(EventType.WARNING, Reason.NODE_CORDONED, words)
        self.events.post_about(about, [event], now=datetime.fromisoformat(written["time"]))

    async def note_breaker(self) -> None:
        """Have the metric tell whether the breaker is latched, also before anybody asks for a cordon. Raises ApiError."""
        await self._latched()

    async def latch(self, why: str) -> bool:
        """Stop cordoning until a person deletes the ConfigMap; whether this call did. Raises ApiError."""
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": self.brakes.breaker, "namespace": self.namespace},
            "data": {"reason": why[:1024]},
        }
        metrics.BREAKER.set(1)
        try:
            await self.cluster.create(f"/api/v1/namespaces/{self.namespace}/configmaps", body)
        except Conflict:
            return False
        return True

    async def _latched(self) -> str:
        try:
            found = await self.cluster.get(f"/api/v1/namespaces/{self.namespace}/configmaps/{self.brakes.breaker}")
        except NotFound:
            metrics.BREAKER.set(0)
            return ""
        metrics.BREAKER.set(1)
        return text((found.get("data") or {}).get("reason"), 1024) or "no reason given"


def read_mark(node: Json) -> CordonMark | None:
    """What Oarlock wrote on a node that it cordoned, None where it did not, or where it cannot be read."""
    said = (node["metadata"].get("annotations") or {}).get(CORDONED)
    if said is None:
        return None
    try:
        mark: dict[str, Any] = json.loads(said)
        return CordonMark(
            node=node["metadata"]["name"], job=str(mark["job"]), time=datetime.fromisoformat(mark["time"])
        )
    except (ValueError, TypeError, KeyError):
        return None


def write_mark(*, job: str, attempt: int, reason: str, time: datetime) -> str:
    """The annotation's value."""
    return json.dumps({"job": job, "attempt": attempt, "reason": reason[:1024], "time": time.isoformat()})


def _has(node: Json, resource: str) -> bool:
    allocatable: dict[str, str] = (node.get("status") or {}).get("allocatable") or {}
    return allocatable.get(resource, "0") != "0"


def is_ready(node: Json) -> bool:
    """Whether its kubelet says that it takes pods."""
    conditions = (node.get("status") or {}).get("conditions") or []
    return any((item.get("type"), item.get("status")) == ("Ready", "True") for item in conditions)
