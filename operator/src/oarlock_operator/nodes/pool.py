"""The pool: the nodes with GPUs that may be cordoned, which of them are, and by whom. Read live, when a brake asks.

Which nodes they are is said by the operator's settings alone. A cordon is entered in the ledger before anything else is
written. Then it is one write, preconditioned by the very version of the node that was read: it is done to that node once, or
not at all.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import structlog

from oarlock_api.contract.node_marks import CORDONED, ENDED
from oarlock_api.contract.wire import text
from oarlock_operator import metrics
from oarlock_operator.decide import brakes
from oarlock_operator.kube.api_error import ApiError, Conflict, NotFound
from oarlock_operator.kube.cluster import Cluster
from oarlock_operator.kube.events import EventPoster
from oarlock_operator.kube.job_paths import job_path
from oarlock_operator.model.cordon_marks import last_mark, published_gpus, standing_mark, write_mark
from oarlock_operator.model.observation import Job
from oarlock_operator.model.observed_nodes import GPU_RESOURCES, Brakes, CordonMark, Ledger, Pool, PoolNode
from oarlock_operator.model.plan import Action, CordonNode, Event, EventType
from oarlock_operator.model.reasons import Reason
from oarlock_operator.nodes.cordon_ledger import CordonLedger, LedgerError
from oarlock_operator.nodes.node_facts import PoolFacts

log = structlog.get_logger(__name__)

_MAY_PASS = (408, 409, 429)
"""Refusals of the API server that the next pass may not meet."""


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolReader:
    """Reads the pool, and cordons in it. `events` tells of nodes.

    `resources` are GPUs; `selector`, a label selector, narrows the nodes.
    """

    cluster: Cluster
    brakes: Brakes
    resources: tuple[str, ...] = GPU_RESOURCES
    selector: str = ""
    events: EventPoster | None = None
    clock: Callable[[], datetime] = _now

    async def read(self) -> Pool:
        """The pool. Where it may not be read, it says so, and nothing is cordoned. Raises ApiError where that may pass."""
        try:
            return await self._read()
        except ApiError as error:
            if not _lasts(error):
                raise
            why = f"the nodes, or what was cordoned, could not be read: {error}"
            return Pool(size=0, schedulable=0, unreadable=why, brakes=self.brakes)

    async def enter(self, job: Job, actions: Sequence[Action], pool: Pool) -> str:
        """Enter what is decided by `pool` in the ledger, before anything is written; why that may not be, in words.

        What hinders it now, and may pass by itself, as a webhook that is down, holds nobody up: `cordon` enters it later,
        by the brakes of then. Raises Conflict where the ledger has changed since: the brakes are to be asked again.
        """
        if pool.unreadable:
            # Nothing new was decided by it; what is repeated was entered before.
            return ""
        known = {mark.key for mark in pool.ledger.entries}
        # What an earlier pass decided, and stands in no ledger, was not decided by this one: `cordon` asks the brakes.
        repeated = {(entry.name, entry.time) for entry in job.status.cordoned_nodes}
        new = [a for a in actions if isinstance(a, CordonNode) and (a.node, a.time) not in repeated]
        marks = [mark for mark in (_entry(job, a) for a in new) if mark.key not in known]
        try:
            if marks:
                await self._ledger.enter(marks, pool.ledger, now=self.clock())
        except Conflict:
            raise
        except ApiError as error:
            if _lasts(error):
                return f"it could not be entered among the cordons: {error}"
            log.warning("not entered yet", nodes=[mark.node for mark in marks], error=str(error))
        return ""

    async def _read(self) -> Pool:
        members: dict[str, PoolNode] = {}
        ours: list[CordonMark] = []
        off: set[str] = set()
        schedulable = 0
        async for page in self.cluster.pages_of(PoolFacts, "/api/v1/nodes", labelSelector=self.selector):
            for node in page.items:
                resources = frozenset(resource for resource in self.resources if node.has(resource))
                if not resources:
                    continue
                about = node.metadata
                gpus = published_gpus(about.annotations)
                members[about.name] = PoolNode(
                    uid=about.uid, made=about.creation_timestamp, resources=resources, gpus=gpus
                )
                schedulable += node.ready and not node.spec.unschedulable
                if node.spec.unschedulable:
                    off.add(about.name)
                    if (mark := standing_mark(about.name, about.annotations)) is not None:
                        ours.append(mark)
        return Pool(
            size=len(members),
            schedulable=schedulable,
            unschedulable=frozenset(off),
            ours=tuple(ours),
            ledger=await self._entered(),
            members=members,
            latched=await self._latched(),
            brakes=self.brakes,
        )

    async def _entered(self) -> Ledger:
        """The ledger. What a job that is gone had still to do is done by nobody any more: it counts as if it had been."""
        known = await self._ledger.read()
        entries = [replace(m, done=m.time) if m.done is None and await self._is_gone(m) else m for m in known.entries]
        return replace(known, entries=tuple(entries))

    async def _is_gone(self, mark: CordonMark) -> bool:
        namespace, _, name = mark.job.partition("/")
        try:
            job = await self.cluster.get(job_path(namespace, name))
        except NotFound:
            return True
        return bool(mark.uid) and job["metadata"]["uid"] != mark.uid

    async def cordon(self, job: Job, action: CordonNode) -> bool:
        """Cordon a node and mark it as ours, in one write; whether this call did. Raises ApiError.

        Not another node of its name, not one that is cordoned already, whosever that is, and not one that was cordoned for
        this before: a person who has uncordoned it has the last word.
        """
        path = f"/api/v1/nodes/{action.node}"
        entry = _entry(job, action)
        try:
            there = await self.cluster.get(path)
        except NotFound:
            return False
        metadata = there["metadata"]
        before = last_mark(action.node, metadata.get("annotations"))
        done = before is not None and before.key == entry.key
        if metadata.get("uid") != action.uid or done or (there.get("spec") or {}).get("unschedulable"):
            return False
        if why := await self._latched():
            # Whoever has latched it since meant this one, too.
            raise ApiError(0, "Latched", f"the breaker is latched: {why}")
        entered = next((one for one in (await self._ledger.read()).entries if one.key == entry.key), None)
        if entered is None:
            await self._enter_late(job, entry)
        elif entered.done is not None:
            return False
        mark = write_mark(entry.job, action)
        changed = {"resourceVersion": metadata["resourceVersion"], "annotations": {CORDONED: mark, ENDED: None}}
        await self.cluster.merge(path, {"metadata": changed, "spec": {"unschedulable": True}})
        metrics.CORDONS.inc()
        self._tell(action.node, mark)
        now = self.clock()
        try:
            await self._ledger.note(replace(entry, done=now), now=now)
        except ApiError as error:
            # It counts longer than it needs to, as one that may still be done.
            log.warning("not noted as done", node=action.node, error=str(error))
        return True

    async def _enter_late(self, job: Job, entry: CordonMark) -> None:
        """Enter what could not be entered when it was decided, or stood in a ledger that was deleted. Raises ApiError."""
        pool = await self.read()
        if refusal := brakes.brake_late(job, entry, pool, now=self.clock()):
            if refusal.latches:
                await self.latch(f"{entry.job}: {refusal.message}")
            raise ApiError(0, "Refused", refusal.message)
        await self._ledger.enter([entry], pool.ledger, now=self.clock())

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

    @property
    def _ledger(self) -> CordonLedger:
        return CordonLedger(cluster=self.cluster, brakes=self.brakes)

    async def note_breaker(self) -> None:
        """Have the metric tell whether the breaker is latched, also before anybody asks for a cordon. Raises ApiError."""
        await self._latched()

    async def latch(self, why: str) -> bool:
        """Stop cordoning until a person deletes the ConfigMap; whether this call did. Raises ApiError."""
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": self.brakes.breaker, "namespace": self.brakes.namespace},
            "data": {"reason": why[:1024]},
        }
        metrics.BREAKER.set(1)
        try:
            await self.cluster.create(f"/api/v1/namespaces/{self.brakes.namespace}/configmaps", body)
        except Conflict:
            return False
        return True

    async def _latched(self) -> str:
        try:
            found = await self.cluster.get(
                f"/api/v1/namespaces/{self.brakes.namespace}/configmaps/{self.brakes.breaker}"
            )
        except NotFound:
            metrics.BREAKER.set(0)
            return ""
        metrics.BREAKER.set(1)
        return text((found.get("data") or {}).get("reason"), 1024) or "no reason given"


def _entry(job: Job, action: CordonNode) -> CordonMark:
    return CordonMark(action.node, f"{job.namespace}/{job.name}", action.time, uid=job.uid)


def _lasts(error: ApiError) -> bool:
    """Whether somebody has to mend something first; else it may pass by itself."""
    return isinstance(error, LedgerError) or (400 <= error.status < 500 and error.status not in _MAY_PASS)
