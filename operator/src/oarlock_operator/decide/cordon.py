"""Cordon: a node whose hardware a report speaks against is taken from the scheduler, as far as the brakes allow (brakes.py).

Decided once, for one node by its uid, and written down before it is done; repeated until the mark was seen on the node, or
until it is too late. So a kill loses none, a write that fails is tried again, and neither a node that a person gave back nor
another one of the same name is ever cordoned for what is over. Uncordoning is a person's act, always.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from oarlock_api.history import CordonedNode
from oarlock_api.recovery import CordonPolicy
from oarlock_operator.decide import avoid, brakes
from oarlock_operator.decide.draft import Draft
from oarlock_operator.faults.classify import Fault
from oarlock_operator.faults.evidence import evidence_summary
from oarlock_operator.model.observation import Observation
from oarlock_operator.model.observed_nodes import Node
from oarlock_operator.model.plan import CordonNode, LatchBreaker, Look
from oarlock_operator.model.reasons import Reason

LIMIT = 64
LOOK_AGAIN_SECONDS = 10.0
UNDONE_SECONDS = 5.0
"""From when on a cordon that does not stand is told of."""


def wish(o: Observation, draft: Draft, fault: Fault, *, attempt: int, why: str) -> None:
    """Cordon the node that `fault` speaks against, or tell why not. Without a look at the pool, ask for one."""
    node, policy = fault.pod.node, o.spec.recovery.cordon
    refusal = brakes.doubt(o, fault)
    if policy is CordonPolicy.NEVER or not (o.defaults.may_cordon or o.defaults.cordon_dry_run):
        no_right = "the operator has no right to cordon nodes (cordon in the chart's values)"
        why_not = "spec.recovery.cordon is Never" if policy is CordonPolicy.NEVER else no_right
        avoid.note_not_cordoned(draft, node, f"{why_not}; {refusal.message}" if refusal else why_not)
        return
    message = evidence_summary(fault)
    if refusal is None:
        if o.pool is None:
            draft.looks.add(Look.POOL)
            return
        if node in o.pool.unschedulable:
            return
        refusal = brakes.brake(o, draft, o.pool, fault)
        message += f"; {brakes.published(o.pool, node)}"
    if policy is CordonPolicy.DRY_RUN or o.defaults.cordon_dry_run:
        would = f"would not be cordoned: {refusal.message}" if refusal else "would be cordoned"
        whose = (
            "spec.recovery.cordon is DryRun"
            if policy is CordonPolicy.DRY_RUN
            else "the operator cordons nothing (DryRun)"
        )
        avoid.note_not_cordoned(draft, node, f"{whose}; it {would}")
        draft.tell(Reason.CORDON_DRY_RUN, f"node {node} {would}: {why}. {message}", warning=True)
        return
    if refusal:
        told = f"node {node} ({why}) is not cordoned, only avoided: {refusal.message}"
        draft.tell(Reason.CORDON_REFUSED, told, warning=True)
        avoid.note_not_cordoned(draft, node, refusal.message)
        if refusal.latches:
            draft.act(LatchBreaker(f"{o.job.namespace}/{o.job.name}: {refusal.message}"))
        return
    entered = brakes.left_over(o, o.pool, node) if o.pool else None
    entry = CordonedNode(
        name=node,
        uid=o.pool.members[node].uid if o.pool else None,
        reason=f"{why}: {message}"[:1024],
        attempt=attempt,
        gpu=fault.gpu,
        time=entered.time if entered else o.now,
    )
    others = [known for known in draft.status.cordoned_nodes if known.name != node]
    draft.set(cordoned_nodes=tuple([*others, entry][-LIMIT:]))
    draft.tell(Reason.NODE_CORDONED, f"node {node}: {why}. {message}", warning=True)
    _act(o, draft, entry)
    # Soon: whether it stands is written down.
    draft.again(1.0)


def follow(o: Observation, draft: Draft) -> None:
    """Write down which cordons stand, and repeat those that do not; whatever the job is about, also after its end."""
    if not o.defaults.may_cordon or o.defaults.cordon_dry_run:
        return
    if o.job.spec is None or o.job.spec.recovery.cordon is not CordonPolicy.AUTO:
        return
    entries: list[CordonedNode] = []
    for entry in draft.status.cordoned_nodes:
        node = o.nodes.get(entry.name)
        if not is_open(entry, now=o.now) or (node is not None and _is_another(node, entry)):
            entries.append(entry)
        elif node is not None and _stands(o, node, entry):
            entries.append(entry.model_copy(update={"done_time": o.now}))
        else:
            entries.append(entry)
            _act(o, draft, entry)
            draft.again(LOOK_AGAIN_SECONDS)
    if o.job.status.completion_time is None and tuple(entries) != draft.status.cordoned_nodes:
        draft.set(cordoned_nodes=tuple(entries))


def is_open(entry: CordonedNode, *, now: datetime) -> bool:
    """Whether a cordon that was decided may still have to be done. Without a uid it is an older release's, and was tried."""
    if entry.done_time is not None or entry.time is None or not entry.uid or not entry.reason:
        return False
    return now - entry.time < brakes.TOO_LATE


def undone(o: Observation, draft: Draft) -> str:
    """Which nodes should be cordoned by now and are not, in words; empty where all are."""
    since = timedelta(seconds=UNDONE_SECONDS)
    names = [
        entry.name
        for entry in draft.status.cordoned_nodes
        if is_open(entry, now=o.now)
        and entry.time is not None
        and o.now - entry.time >= since
        and (node := o.nodes.get(entry.name))
        and not _is_another(node, entry)
    ]
    return f"not cordoned yet, only avoided, and tried again: {', '.join(names[:8])}" if names else ""


def _act(o: Observation, draft: Draft, entry: CordonedNode) -> None:
    if entry.time is not None:
        uid, attempt, reason = entry.uid or "", entry.attempt or 0, entry.reason or ""
        draft.act(CordonNode(entry.name, uid, attempt, reason, entry.time, o.now, entry.gpu))


def _is_another(node: Node, entry: CordonedNode) -> bool:
    """Whether the node that was to be cordoned is gone: another one of its name is no business of this."""
    return not node.exists or node.uid != entry.uid


def _stands(o: Observation, node: Node, entry: CordonedNode) -> bool:
    """Whether the cordon was done, by us or by anybody. A mark that a person has ended since was done as well."""
    job = f"{o.job.namespace}/{o.job.name}"
    mark = node.cordon
    return node.unschedulable or (mark is not None and (mark.job, mark.time) == (job, entry.time))
