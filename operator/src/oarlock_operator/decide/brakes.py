"""The brakes of cordoning. A mistake here would empty a cluster, so there are many, and no job's number or shape moves one.

The pool is the operator's: nodes that have what its settings call GPUs. Counted in a window are the cordons of the whole
cluster and of each namespace, as they stand in the ledger: those that stand, those that a person has ended, and those that
may still be done. Whoever runs into the cluster's number latches a breaker that a person resets; a namespace that has used
up its share stops only itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from oarlock_api.contract.node_marks import ONLY_A_CLAIM
from oarlock_api.history import CordonedNode
from oarlock_operator.decide.draft import Draft
from oarlock_operator.decide.vouching import unvouched
from oarlock_operator.faults.classify import Fault
from oarlock_operator.model.cordon_marks import GPUS
from oarlock_operator.model.observation import Job, Observation, gang_size
from oarlock_operator.model.observed_nodes import Brakes, CordonMark, Pool

TOO_LATE = timedelta(hours=1)
"""For so long a cordon that was decided is tried; a node that was not reached by then is only avoided."""


@dataclass(frozen=True, slots=True)
class CordonRefusal:
    """Why a brake holds; `latches` where the operator as a whole should stop cordoning until somebody has looked."""

    message: str
    latches: bool = False


def doubt(o: Observation, fault: Fault) -> CordonRefusal | None:
    """Why the word of this job's pods takes no node from others, whatever it says; None where it may.

    A report comes from inside the pod: whoever chose the program there can write it.
    """
    spec, defaults = o.spec, o.defaults
    gpu = fault.gpu
    if not spec.gpus_per_node:
        return CordonRefusal("the job asks for no GPUs")
    if spec.pod.gpu_resource not in defaults.cordon_resources:
        return CordonRefusal(
            f"{spec.pod.gpu_resource} is none of the resources that are GPUs here (CORDON_GPU_RESOURCES)"
        )
    custom, ours = spec.custom is not None, defaults.trainer_image
    if why := unvouched(fault.pod.program, custom=custom, trainer_image=ours, named=defaults.cordon_images):
        return CordonRefusal(f"{ONLY_A_CLAIM}: {why}")
    if gpu is None or not (gpu.uuid or gpu.serial):
        return CordonRefusal("its report names no GPU by UUID or serial number")
    return None


def counts_until(mark: CordonMark, limits: Brakes) -> datetime:
    """Until when a window counts a cordon: from when it was known to stand, or else from when it could last be done."""
    return (mark.done or mark.time + TOO_LATE) + timedelta(seconds=limits.window_seconds)


def left_over(o: Observation, pool: Pool, node: str) -> CordonMark | None:
    """What this very job has entered for the node, and never came to write down: an operator was cut off in between.

    It is to be taken up again, once: nobody cordons for what stands in no status.
    """
    written = {(entry.name, entry.time) for entry in o.job.status.cordoned_nodes}
    for mark in pool.ledger.entries:
        mine = (mark.node, mark.uid) == (node, o.job.uid) and (node, mark.time) not in written
        if mine and mark.done is None and o.now - mark.time < TOO_LATE:
            return mark
    return None


def published(pool: Pool, node: str) -> str:
    """Whether the report was held against the node's own list of its GPUs, and what to do where there is none."""
    member = pool.members.get(node)
    if member and member.gpus:
        return f"the node lists this GPU ({GPUS})"
    return f"not checked against the node: it lists no GPUs (annotate nodes with {GPUS}: docs/gpu-faults.md)"


def brake(o: Observation, draft: Draft, pool: Pool, fault: Fault) -> CordonRefusal | None:
    """Why the node of `fault` may not be cordoned now, None if it may."""
    node, entered = fault.pod.node, left_over(o, pool, fault.pod.node)
    others = [mark for mark in _remembered(o.job, draft.status.cordoned_nodes, pool) if mark != entered]
    return _of_everything(pool) or _of_the_node(o, pool, fault) or _of_the_others(o.job, node, pool, others, now=o.now)


def brake_late(job: Job, mark: CordonMark, pool: Pool, *, now: datetime) -> CordonRefusal | None:
    """Why a cordon that was decided, and could not be entered then, may not be entered now; None if it may.

    Others have decided since, and have not counted it: now it counts them.
    """
    others = [known for known in _remembered(job, job.status.cordoned_nodes, pool) if known.key != mark.key]
    return _of_everything(pool) or _of_the_others(job, mark.node, pool, others, now=now)


def _of_everything(pool: Pool) -> CordonRefusal | None:
    if pool.unreadable:
        return CordonRefusal(pool.unreadable)
    if pool.latched:
        reset = f"kubectl delete configmap {pool.brakes.breaker} -n {pool.brakes.namespace}"
        return CordonRefusal(f"the breaker is latched ({pool.latched}); to reset it: {reset}")
    return None


def _of_the_node(o: Observation, pool: Pool, fault: Fault) -> CordonRefusal | None:
    """The node must be one with such GPUs, the one that the pod ran on, and have the GPU that is named."""
    member, resource = pool.members.get(fault.pod.node), o.spec.pod.gpu_resource
    if member is None or resource not in member.resources:
        return CordonRefusal(f"it is none of the nodes with {resource} that may be cordoned")
    placed = fault.pod.placed_at
    if placed is not None and member.made is not None and member.made > placed:
        return CordonRefusal("it was made after the pod was placed: another node had its name then")
    gpu = fault.gpu
    if member.gpus and (gpu is None or not ({gpu.uuid, gpu.serial} & member.gpus)):
        return CordonRefusal("the GPU that is named is none of those that the node lists (oarlock.dev/gpus)")
    return None


def _of_the_others(
    job: Job, node: str, pool: Pool, others: Sequence[CordonMark], *, now: datetime
) -> CordonRefusal | None:
    """The window, and what would be left. `others`: every cordon but the one that is asked for."""
    recent = [mark for mark in others if now < counts_until(mark, pool.brakes)]
    # What is decided and not seen yet stands on no node.
    wished = {mark.node for mark in others if mark.done is None and now - mark.time < TOO_LATE}
    return _of_the_window(job, pool, recent) or _of_what_is_left(job, node, pool, wished)


def _of_the_window(job: Job, pool: Pool, recent: Sequence[CordonMark]) -> CordonRefusal | None:
    limits, namespace, name = pool.brakes, job.namespace, f"{job.namespace}/{job.name}"
    allowed = max(limits.max_nodes, int(pool.size * limits.max_percent / 100))
    if len(recent) >= allowed:
        message = f"{len(recent)} nodes were cordoned within {limits.window_seconds} s, {allowed} are allowed"
        return CordonRefusal(message, latches=True)
    if any(mark.job == name for mark in recent):
        return CordonRefusal(f"this job had a node cordoned within {limits.window_seconds} s")
    share = max(limits.namespace_max_nodes, int(pool.size * limits.namespace_max_percent / 100))
    of_the_namespace = sum(mark.namespace == namespace for mark in recent)
    if of_the_namespace >= share:
        message = f"namespace {namespace} had {of_the_namespace} nodes cordoned within {limits.window_seconds} s"
        return CordonRefusal(f"{message}, {share} are its share")
    return None


def _of_what_is_left(job: Job, node: str, pool: Pool, wished: set[str]) -> CordonRefusal | None:
    gang = gang_size(job.spec, job.status, job.status.attempt) if job.spec else 0
    left = pool.schedulable - len((wished | {node}) - pool.unschedulable)
    if left < gang and not pool.brakes.allow_below_gang:
        return CordonRefusal(f"{left} nodes would be left for a gang of {gang}")
    taken = {mark.node for mark in pool.ours} | wished
    if 2 * len(taken | {node}) > pool.size:
        # A first fault says nothing of a wave of them: of a single node, every one would be more than half.
        message = f"more than half of the {pool.size} nodes would be cordoned by Oarlock"
        return CordonRefusal(message, latches=bool(taken - {node}))
    return None


def _remembered(job: Job, decided: Sequence[CordonedNode], pool: Pool) -> list[CordonMark]:
    """Every cordon once: of the ledger, of the nodes, and what this job, and this very pass, has decided."""
    name = f"{job.namespace}/{job.name}"
    own = [CordonMark(e.name, name, e.time, e.done_time) for e in decided if e.time]
    found: dict[tuple[str, str, datetime], CordonMark] = {}
    for mark in (*own, *pool.ours, *pool.ledger.entries):
        before = found.get(mark.key)
        dones = [done for done in (mark.done, before.done if before else None) if done is not None]
        found[mark.key] = replace(mark, done=max(dones, default=None))
    return list(found.values())
