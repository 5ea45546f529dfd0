"""Reconcile: observe -> decide -> write the status -> tell -> execute. One job, one pass.

The status goes first and is preconditioned by the version that was observed: if anybody else wrote meanwhile, nothing is
done and the next pass looks again. So every action's intent stands in the API before the action, and killing this process
between any two lines leads to the same end (docs/decisions/0001).
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field, replace

import structlog

from oarlock_api.contract.names import API_VERSION, KIND
from oarlock_api.spec import OPERATOR
from oarlock_operator import metrics
from oarlock_operator.decide import decide, unreadable
from oarlock_operator.execute import NAME_TAKEN, execute
from oarlock_operator.kube.api_error import ApiError
from oarlock_operator.kube.cluster import Json
from oarlock_operator.kube.events import EventPoster
from oarlock_operator.kube.job_paths import job_path
from oarlock_operator.kube.throttle import Throttle
from oarlock_operator.model.observation import Defaults, Key, Observation
from oarlock_operator.model.plan import CordonNode, CreatePods, LatchBreaker, Look, Need, Plan, plan_of
from oarlock_operator.model.reasons import Reason
from oarlock_operator.nodes.pool import PoolReader
from oarlock_operator.nodes.spares import SpareReader
from oarlock_operator.observe import pace
from oarlock_operator.observe.memory import Memory
from oarlock_operator.observe.observe import Sources, observe
from oarlock_operator.observe.other_release import overlaid

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciler:
    """What a pass needs."""

    sources: Sources
    memory: Memory
    defaults: Defaults
    pool: PoolReader
    spares: SpareReader
    throttle: Throttle
    events: EventPoster
    cordoning: asyncio.Lock = field(default_factory=asyncio.Lock)
    moving: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def reconcile(self, key: Key, *, waited: float) -> float | None:
        """One pass over one job. Returns the seconds until the next look, None for an event or the resync.

        Raises ApiError; a Conflict means that somebody else wrote, look again.
        """
        started = time.monotonic()
        defaults = replace(self.defaults, figures_seconds=pace.figures_seconds(self.memory.training()))
        seen = await observe(self.sources, self.memory, key, defaults=defaults, waited=waited)
        if seen is None:
            self.memory.forget(key)
            return None
        o, raw = seen
        if o.job.unreadable and o.job.managed_by == OPERATOR:
            await self._tell_unreadable(o, raw)
            return None
        self._note_rejections(o)
        with structlog.contextvars.bound_contextvars(
            namespace=key[0], job=key[1], uid=o.job.uid, attempt=o.job.status.attempt
        ):
            outcome = decide(o)
            if isinstance(outcome, Need) and outcome.look is Look.POOL:
                # One at a time: two jobs must not each see the other's last allowed cordon still to be had.
                async with self.cordoning:
                    o, outcome = await self._within_brakes(o)
                    plan = await self._write(key, o, raw, plan_of(outcome), started)
                    # The gang itself is torn down and made without the lock: others' nodes are broken meanwhile.
                    now = [action for action in plan.actions if isinstance(action, CordonNode | LatchBreaker)]
                    await execute(self.sources.cluster, o.job, now, throttle=self.throttle, pool=self.pool)
                return await self._act(
                    key, o, replace(plan, actions=tuple(a for a in plan.actions if a not in now)), started
                )
            if isinstance(outcome, Need) and not self.moving.locked():
                # One at a time here, too, but nobody waits for it: whoever wants to move trains on and asks again.
                async with self.moving:
                    if await self.spares.enough(o.job, o.pods, self.memory.of(key), leaving=outcome.leaving):
                        o = replace(o, spares=True)
                        outcome = decide(o)
            return await self._carry_out(key, o, raw, plan_of(outcome), started)

    async def _within_brakes(self, o: Observation) -> tuple[Observation, Plan | Need]:
        """Decide with a look at the pool. What is to be cordoned is entered in the ledger that the decision was made by."""
        o = replace(o, pool=await self.pool.read())
        outcome = decide(o)
        if o.pool and (why := await self.pool.enter(o.job, plan_of(outcome).actions, o.pool)):
            o = replace(o, pool=replace(o.pool, unreadable=why))
            outcome = decide(o)
        return o, outcome

    async def _carry_out(self, key: Key, o: Observation, raw: Json, plan: Plan, started: float) -> float | None:
        """Write, tell, act."""
        return await self._act(key, o, await self._write(key, o, raw, plan, started), started)

    async def _write(self, key: Key, o: Observation, raw: Json, plan: Plan, started: float) -> Plan:
        """Write the status and tell of it; the plan as it now holds."""
        current = plan.status or o.job.status
        memory = self.memory.of(key)
        memory.attempt, memory.look_seconds = current.attempt, time.monotonic() - started
        memory.trains = current.attempt > 0 and current.recovery.stage is None
        waits = plan.minor and plan.status is not None
        if waits and (later := pace.until_next_minor(memory, now=time.monotonic())) > 0:
            plan = replace(plan, status=None, again_seconds=min(later, plan.again_seconds or later))
        if plan.status is not None:
            stamped = plan.status.model_copy(update={"last_reconcile_time": o.now})
            written = await self._write_status(raw, overlaid(raw.get("status"), before=o.job.status, after=stamped))
            memory.written, memory.written_at = written["metadata"]["resourceVersion"], time.monotonic()
            if plan.status.rounds:
                memory.drops_rounds = not written["status"].get("rounds")
            metrics.written(*key, o.job.status, plan.status)
        else:
            metrics.seen(*key, o.job.status)
        metrics.CORDONS_REFUSED.inc(sum(event.reason == Reason.CORDON_REFUSED for event in plan.events))
        self.events.post(o.job, plan.events, now=o.now)
        return plan

    async def _act(self, key: Key, o: Observation, plan: Plan, started: float) -> float | None:
        """Carry out what is written down."""
        memory = self.memory.of(key)
        for action in plan.actions:
            if isinstance(action, CreatePods):
                # Before they are made: of a request that failed, or never answered, the pod may be there all the same.
                self.memory.outputs.note_made(action.manifests)
        try:
            await execute(self.sources.cluster, o.job, plan.actions, throttle=self.throttle, pool=self.pool)
        except ApiError as error:
            if error.creating and (error.lasting or error.reason == NAME_TAKEN):
                memory.refusal, memory.hindrance = (error.message, "") if error.final else ("", error.message)
            raise
        if plan.actions:
            memory.refusal = memory.hindrance = ""
        if o.job.status.completion_time is not None:
            self.memory.forget(key, finished=True)
        metrics.RECONCILE_SECONDS.observe(time.monotonic() - started)
        return plan.again_seconds

    def _note_rejections(self, o: Observation) -> None:
        """A report that is not believed does nothing but stand in the log and in a count, once."""
        for pod in o.pods:
            if pod.ending and pod.ending.rejected and self.memory.terminated.first_rejection(pod.uid):
                metrics.REPORTS_REJECTED.inc()
                log.warning("a report is not believed", job=o.job.name, pod=pod.name, why=pod.ending.rejected)

    async def _tell_unreadable(self, o: Observation, raw: Json) -> None:
        """Nothing is decided about this job. It says so once; a server that does not take that has the Event."""
        status = unreadable.status_with_condition(raw, o.job, now=o.now)
        if status is None or o.job.deleting:
            return
        self.events.post(o.job, [unreadable.event(o.job)], now=o.now)
        try:
            await self._write_status(raw, status)
        except ApiError as error:
            if not error.final:
                raise
            log.warning("not told in its status", namespace=o.job.namespace, job=o.job.name, error=str(error))

    async def _write_status(self, raw: Json, status: Json) -> Json:
        """Replace the status of the very version that was observed; returns the job as it now is."""
        metadata = raw["metadata"]
        # The server takes nothing but the status from this; without the spec it has half as much to decode.
        known = {part: metadata[part] for part in ("name", "namespace", "uid", "resourceVersion")}
        body = {"apiVersion": API_VERSION, "kind": KIND, "metadata": known, "status": status}
        return await self.sources.cluster.replace(f"{job_path(metadata['namespace'], metadata['name'])}/status", body)
