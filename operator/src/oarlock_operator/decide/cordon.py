"""Cordon: a node whose hardware a report speaks against is taken from the scheduler, as far as the brakes allow.

A mistake here would empty a cluster, so there are many brakes: a number and a share of the pool within a window, never half
of it, never below what the gang itself needs, one node per job and window. Whoever runs into the first one latches a breaker
that a person resets. Uncordoning is a person's act, always.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from oarlock_api.history import CordonedNode, RecoveryStage
from oarlock_api.recovery import CordonPolicy
from oarlock_operator.decide.draft import Draft
from oarlock_operator.observation import CordonMark, Observation, Pool
from oarlock_operator.plan import CordonNode, LatchBreaker
from oarlock_operator.reasons import Reason

LIMIT = 64


def wish(o: Observation, draft: Draft, node: str, *, attempt: int, why: str, evidence: str) -> None:
    """Cordon `node` for what happened in `attempt`, or tell why not. Without a look at the pool, ask for one."""
    policy = o.spec.recovery.cordon
    if policy is CordonPolicy.NEVER or not node or not o.defaults.may_cordon:
        return
    if o.pool is None:
        draft.wants_pool = True
        return
    if node in o.pool.unschedulable:
        return
    refusal = brake(o, draft, o.pool, node)
    if policy is CordonPolicy.DRY_RUN:
        would = f"would not be cordoned: {refusal.words}" if refusal else "would be cordoned"
        draft.tell(Reason.CORDON_DRY_RUN, f"node {node} {would}: {why}. {evidence}", warning=True)
        return
    if refusal:
        draft.tell(
            Reason.CORDON_REFUSED, f"node {node} ({why}) is not cordoned, only avoided: {refusal.words}", warning=True
        )
        if refusal.latches:
            draft.act(LatchBreaker(f"{o.job.namespace}/{o.job.name}: {refusal.words}"))
        return
    entry = CordonedNode(name=node, reason=f"{why}: {evidence}"[:1024], time=o.now)
    others = [known for known in draft.status.cordoned_nodes if known.name != node]
    draft.set(cordoned_nodes=tuple([*others, entry][-LIMIT:]))
    draft.tell(Reason.NODE_CORDONED, f"node {node}: {why}. {evidence}", warning=True)
    draft.act(CordonNode(node, attempt, entry.reason or why, o.now))


def _history(o: Observation, draft: Draft, pool: Pool) -> list[CordonMark]:
    """Cordons that the window counts: those that nodes tell of, and this job's own, whose nodes may be mended or gone."""
    job, known = f"{o.job.namespace}/{o.job.name}", {mark.node for mark in pool.ours}
    own = [CordonMark(entry.name, job, entry.time) for entry in draft.status.cordoned_nodes if entry.time]
    marks = [*pool.ours, *(mark for mark in own if mark.node not in known)]
    return [mark for mark in marks if o.now - mark.time < timedelta(seconds=pool.brakes.window_seconds)]


def carry_out(draft: Draft) -> None:
    """Cordon what this recovery, or the job's end, has put down; repeated while it lasts, so that a kill loses none."""
    status = draft.status
    record, stopping = draft.attempt(status.attempt), status.recovery.stage == RecoveryStage.STOPPING
    since = status.recovery.stage_start_time if stopping else record.start_time
    if since is None or (record.created_time is not None and not stopping):
        return
    for entry in status.cordoned_nodes:
        if entry.time is not None and entry.time >= since and entry.reason:
            number = status.attempt if stopping else status.attempt - 1
            draft.act(CordonNode(entry.name, number, entry.reason, entry.time))


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a brake holds; `latches` where the operator as a whole should stop cordoning until somebody has looked."""

    words: str
    latches: bool = False


def brake(o: Observation, draft: Draft, pool: Pool, node: str) -> Refusal | None:
    """Why `node` may not be cordoned now, None if it may."""
    brakes = pool.brakes
    if pool.latched:
        reset = f"kubectl delete configmap {brakes.breaker} -n {brakes.namespace}"
        return Refusal(f"the breaker is latched ({pool.latched}); to reset it: {reset}")
    recent = _history(o, draft, pool)
    # What this very pass has cordoned stands on no node yet.
    pending = {entry.name for entry in draft.status.cordoned_nodes if entry.time == o.now} - {node}
    allowed = max(brakes.max_nodes, int(pool.size * brakes.max_percent / 100))
    if len(recent) >= allowed:
        words = f"{len(recent)} nodes were cordoned within {brakes.window_seconds} s, {allowed} are allowed"
        return Refusal(words, latches=True)
    if 2 * (len({mark.node for mark in pool.ours} | pending) + 1) > pool.size:
        return Refusal(f"more than half of the {pool.size} nodes would be cordoned by Oarlock", latches=True)
    if any(mark.job == f"{o.job.namespace}/{o.job.name}" for mark in recent):
        return Refusal(f"this job had a node cordoned within {brakes.window_seconds} s")
    left = pool.schedulable - len((pending | {node}) - pool.unschedulable)
    if left < o.spec.nodes and not brakes.allow_below_gang:
        return Refusal(f"{left} nodes would be left for a gang of {o.spec.nodes}")
    return None
