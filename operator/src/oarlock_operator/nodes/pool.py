"""The pool: the nodes with GPUs that may be cordoned, which of them are, and by whom. Read live, when a brake asks.

Which nodes they are is said by the operator's settings alone. A cordon is one write, preconditioned by the very version of
the node that was read: it is done to that node once, or not at all.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import structlog
from msgspec import Struct

from oarlock_api.contract.wire import text
from oarlock_operator import metrics
from oarlock_operator.kube.api_error import ApiError, Conflict, NotFound
from oarlock_operator.kube.cluster import Cluster
from oarlock_operator.kube.events import EventPoster
from oarlock_operator.kube.job_paths import job_collections
from oarlock_operator.model.cordon_marks import (
    CORDONED,
    ENDED,
    ended_mark,
    last_mark,
    published_gpus,
    standing_mark,
    write_mark,
)
from oarlock_operator.model.observation import Job
from oarlock_operator.model.observed_nodes import GPU_RESOURCES, Brakes, CordonMark, Pool, PoolNode
from oarlock_operator.model.plan import CordonNode, Event, EventType
from oarlock_operator.model.reasons import Reason
from oarlock_operator.nodes.node_facts import RawNode
from oarlock_operator.pods.pod_facts import Metadata

log = structlog.get_logger(__name__)

REMEMBERED = timedelta(days=1)
_MAY_PASS = (408, 409, 429)
"""Refusals of the API server that the next pass may not meet."""


class _Cordoned(Struct, frozen=True, rename="camel"):
    name: str = ""
    time: datetime | None = None
    done_time: datetime | None = None


class _Status(Struct, frozen=True, rename="camel"):
    cordoned_nodes: tuple[_Cordoned, ...] | None = None


class _Job(Struct, frozen=True):
    """Of a job, only which nodes were cordoned for it."""

    metadata: Metadata
    status: _Status = _Status()


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolReader:
    """Reads the pool, and cordons in it. `namespace`: where the breaker's ConfigMap lies; `events` tells of nodes.

    `resources` are GPUs; `selector`, a label selector, narrows the nodes.
    """

    cluster: Cluster
    namespace: str
    brakes: Brakes
    resources: tuple[str, ...] = GPU_RESOURCES
    selector: str = ""
    events: EventPoster | None = None
    known: dict[tuple[str, str, datetime], CordonMark] = field(default_factory=dict)
    """What this process has cordoned: a job may be deleted, and a node made anew, before the window is over."""

    async def read(self, *, now: datetime) -> Pool:
        """The pool. Where it may not be read, it says so, and nothing is cordoned. Raises ApiError where that may pass."""
        try:
            return await self._read(now)
        except ApiError as error:
            if not 400 <= error.status < 500 or error.status in _MAY_PASS:
                raise
            return Pool(size=0, schedulable=0, unreadable=str(error), brakes=self.brakes)

    async def _read(self, now: datetime) -> Pool:
        members: dict[str, PoolNode] = {}
        ours: list[CordonMark] = []
        ended: list[CordonMark] = []
        off: set[str] = set()
        schedulable = 0
        async for page in self.cluster.pages_of(RawNode, "/api/v1/nodes", labelSelector=self.selector):
            for node in page.items:
                resources = frozenset(resource for resource in self.resources if node.has(resource))
                if not resources:
                    continue
                about = node.metadata
                gpus = published_gpus(about.annotations)
                members[about.name] = PoolNode(
                    uid=about.uid, made=about.creation_timestamp, resources=resources, gpus=gpus
                )
                if node.spec.unschedulable:
                    off.add(about.name)
                schedulable += node.ready and not node.spec.unschedulable
                if (mark := standing_mark(about.name, about.annotations)) is not None:
                    (ours if node.spec.unschedulable else ended).append(mark)
                if (mark := ended_mark(about.name, about.annotations)) is not None:
                    ended.append(mark)
        return Pool(
            size=len(members),
            schedulable=schedulable,
            unschedulable=frozenset(off),
            ours=tuple(ours),
            known=(*ended, *await self._wished(), *self._remembered(now)),
            members=members,
            latched=await self._latched(),
            brakes=self.brakes,
        )

    async def _wished(self) -> list[CordonMark]:
        """What stands in the status of jobs: cordons that were done, and such as may still be done."""
        found: list[CordonMark] = []
        async for page in self.cluster.pages_of(_Job, job_collections(())[0]):
            for job in page.items:
                name = f"{job.metadata.namespace}/{job.metadata.name}"
                entries = job.status.cordoned_nodes or ()
                found += [CordonMark(one.name, name, one.time, one.done_time) for one in entries if one.time]
        return found

    def _remembered(self, now: datetime) -> list[CordonMark]:
        for key, mark in list(self.known.items()):
            if now - mark.time >= REMEMBERED:
                del self.known[key]
        return list(self.known.values())

    async def cordon(self, job: Job, action: CordonNode) -> bool:
        """Cordon a node and mark it as ours, in one write; whether this call did. Raises ApiError.

        Not another node of its name, not one that is cordoned already, whosever that is, and not one that was cordoned for
        this before: a person who has uncordoned it has the last word.
        """
        path = f"/api/v1/nodes/{action.node}"
        owner = f"{job.namespace}/{job.name}"
        try:
            there = await self.cluster.get(path)
        except NotFound:
            return False
        metadata = there["metadata"]
        before = last_mark(action.node, metadata.get("annotations"))
        done = before is not None and (before.job, before.time) == (owner, action.time)
        if metadata.get("uid") != action.uid or done or (there.get("spec") or {}).get("unschedulable"):
            return False
        if why := await self._latched():
            # Whoever has latched it since meant this one, too.
            raise ApiError(0, "Latched", f"the breaker is latched: {why}")
        mark = write_mark(owner, action)
        said = metadata.get("annotations") or {}
        # The one before still counts in its window, and who remembers it else may be gone: its job, and this process.
        marks = {CORDONED: mark, ENDED: said.get(CORDONED) or said.get(ENDED)}
        changed = {"resourceVersion": metadata["resourceVersion"], "annotations": marks}
        await self.cluster.merge(path, {"metadata": changed, "spec": {"unschedulable": True}})
        self.known[action.node, owner, action.time] = CordonMark(action.node, owner, action.time, action.at)
        metrics.CORDONS.inc()
        self._tell(action.node, mark)
        return True

    def tell_failure(self, job: Job, action: CordonNode, error: ApiError) -> None:
        """What the API server has against a cordon, for whoever looks at the job."""
        metrics.CORDONS_FAILED.inc()
        if self.events is not None:
            message = f"node {action.node} could not be cordoned, and is only avoided until it is: {error}"
            self.events.post(job, [Event(EventType.WARNING, Reason.CORDON_FAILED, message)], now=action.at)

    def _tell(self, name: str, mark: str) -> None:
        """The Event that `kubectl describe node` shows to whoever wonders why."""
        if self.events is None:
            return
        written = json.loads(mark)
        message = f"cordoned by Oarlock for {written['job']}, attempt {written['attempt']}: {written['reason']}"
        about = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": name}  # as the kubelet's own Events name it
        event = Event(EventType.WARNING, Reason.NODE_CORDONED, message)
        self.events.post_about(about, [event], now=datetime.fromisoformat(written["at"]))

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
