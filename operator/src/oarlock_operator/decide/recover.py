"""Recover: a fault in the current attempt becomes the next attempt, or the end of the job.

Intent first: this policy only writes the next attempt's number, its reason and the blame; deleting and creating follow in
`drain` and `create`, in this pass or, after a crash, in any later one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, timedelta

from oarlock_api.contract.exit_codes import FailureClass
from oarlock_api.contract.names import pod_name
from oarlock_api.history import AttemptFault, LastFault, RecoveryStage, RestartCounts
from oarlock_operator import schedulers
from oarlock_operator.decide import attempt, avoid, cordon, image, made_progress, not_in_place, repeated_gpu_faults
from oarlock_operator.decide.backstop import lost_pods, silent_agents
from oarlock_operator.decide.budgets import backoff_seconds
from oarlock_operator.decide.charge import charge
from oarlock_operator.decide.draft import Draft, milliseconds_since
from oarlock_operator.decide.final_status import note_saved, note_steps
from oarlock_operator.decide.finish import stop
from oarlock_operator.decide.teardown import overdue
from oarlock_operator.faults.attribution import Attribution, attribute, detected_at
from oarlock_operator.faults.classify import Avoid, Budget, Fault, classify, missing
from oarlock_operator.faults.rules import ruled, warning
from oarlock_operator.model.observation import Observation, Pod, gang_size, standing_by

SETTLE_SECONDS = 1.0
"""How long a victim's word alone waits for the cause to speak up."""
SOUGHT = ". Why, is looked for until all pods have stopped"
"""What a victim says is no cause: one may still speak up while the pods leave."""


def recover(o: Observation, draft: Draft) -> bool:
    """Turn a fault of the current attempt into the next attempt's intent, or into the job's end."""
    faults = find_faults(o, draft)
    if not faults:
        return False
    if _may_settle(o, draft, attribute(faults)):
        draft.again(SETTLE_SECONDS / 4)
        return True
    heard = all(pod.stopped for pod in o.members(draft.status.attempt))
    found = judge(o, draft, draft.status.attempt, faults, heard=heard)
    cause, why = found.cause, not_in_place.why(o, draft, faults)
    left = cause.victim or (cause.failure_class is FailureClass.REQUESTED and not _is_asked_to_go(o, draft))
    if draft.status.recovery.stage == RecoveryStage.REPLACE and left and cause.budget is not Budget.NONE:
        # They waited long enough for a pod whose loss was charged when it was to be replaced, or left as it did.
        begin_next(o, draft, found, draft.status.restarts, why=why)
        return False
    counts = charge(
        o,
        draft,
        cause,
        furthest=made_progress.of_attempt(o, draft, held=bool(cause.held)),
        worked=_ranks_started(draft),
        asked_to_go=_is_asked_to_go(o, draft),
    )
    if counts is None:
        return stop(o, draft)
    begin_next(o, draft, found, counts, why=why)
    return False


def _is_asked_to_go(o: Observation, draft: Draft) -> bool:
    """Whether somebody took one of the gang's pods away: its peers leave with it, and say no more than that they left.

    A program that ends with the code of a request though nobody asked is a program that ends.
    """
    number = draft.status.attempt
    pods = o.members(number)
    there = {pod.rank for pod in pods} | standing_by(o.job.status, number)
    there |= {one.rank for one in draft.status.recovery.replacing}
    all_there = len(there) >= gang_size(o.spec, draft.status, number)
    return not all_there or any(pod.disrupted or pod.deleting or pod.gone for pod in pods)


def find_faults(o: Observation, draft: Draft) -> list[Fault]:
    """Faults of the current attempt's pods; a pod that was there once and is nowhere now is one.

    What becomes of a pod that stands by is nobody's fault: the gang works without it.
    """
    number = draft.status.attempt
    pods = o.members(number)
    idle = standing_by(o.job.status, number)
    unmarked = schedulers.system_of(draft.status.resolved).unmarked
    faults = [
        fault
        for pod in (_preempted(pod, unmarked) for pod in pods)
        if (fault := classify(pod, overdue=overdue(o, pod), node_lost=o.on_lost_node(pod))) is not None
    ]
    if draft.attempt(number).created_time is not None:
        # A pod that is made anew is missed by nobody.
        here = {pod.rank for pod in pods} | {one.rank for one in draft.status.recovery.replacing}
        here |= {pod.rank for pod in o.of_attempt(number)} if _needs_spares(draft, pods) else idle
        faults += [
            missing(pod_name(o.job.name, number, rank), number, rank)
            for rank in range(gang_size(o.spec, draft.status, number))
            if rank not in here
        ]
    faults += [fault for fault in (*silent_agents(o, draft), *lost_pods(o, draft)) if fault.pod.rank not in idle]
    # What only warns is no cause of what broke, and a gang that broke cannot save.
    return faults or _warnings(o, draft, pods)


def _needs_spares(draft: Draft, pods: Sequence[Pod]) -> bool:
    """Whether a queue still holds the gang back, which lets it in once its spares are there, too."""
    waits = draft.status.recovery.stage in (RecoveryStage.SCHEDULE, RecoveryStage.QUEUE)
    counted = schedulers.system_of(draft.status.resolved).counts_spares
    return waits and counted and any(pod.gated for pod in pods)


def _warnings(o: Observation, draft: Draft, pods: Sequence[Pod]) -> list[Fault]:
    """Faults that a rule of the job's own makes of GPUs that warn, while the gang trains."""
    if draft.status.recovery.stage is not None or any(pod.stopped or pod.deleting for pod in pods):
        return []
    rules = o.spec.recovery.rules
    # A gang that is on such a node all the same has found no other: it would only come back.
    avoided = {e.name for e in draft.status.avoided_nodes if avoid.is_in_force(e, now=o.now)}
    found = (
        warning(pod, o.warnings.get(pod.uid, ""), held, rules, avoided=pod.node in avoided)
        for pod in pods
        if (held := o.held.get(pod.uid))
    )
    return [fault for fault in found if fault]


def _preempted(pod: Pod, message: str) -> Pod:
    """A pod that is deleted and has nothing to say for itself was preempted, where its scheduler does so without a mark."""
    return (
        replace(pod, disrupted=message)
        if message and pod.deleting and pod.report is None and not pod.disrupted
        else pod
    )


def judge(o: Observation, draft: Draft, number: int, faults: list[Fault], *, heard: bool) -> Attribution:
    """What the faults that end attempt `number` come to: strikes, blame and cause are written down. May be repeated.

    `heard`: all of its pods have had their say.
    """
    found = weigh(o, draft, number, faults, heard=heard)
    if draft.status.last_fault:
        draft.record(number, fault=_kept(draft.status.last_fault))
    return found


def weigh(o: Observation, draft: Draft, number: int, faults: list[Fault], *, heard: bool) -> Attribution:
    """The same for faults that may leave the attempt as it is."""
    rules = o.spec.recovery.rules
    faults = [image.blame_the_node(o, draft, number, fault) for fault in faults]
    faults = [fault if fault.victim else ruled(fault, rules) for fault in faults]
    faults = repeated_gpu_faults.count(o, draft, number, faults, heard=heard)
    note_steps(draft, faults)
    note_saved(o, draft, number)
    found = attribute(faults)
    if found.cause.victim:
        found = replace(found, cause=ruled(found.cause, rules))
    draft.set(last_fault=last_fault(o, found))
    blame(o, draft, number, faults)
    return found


def blame(o: Observation, draft: Draft, number: int, faults: list[Fault]) -> None:
    """Put the nodes that faults of attempt `number` speak against on the avoid-list; cordon those with evidence."""
    for fault in faults:
        if fault.avoid is not Avoid.NO and not fault.victim:
            why = f"{fault.reason} in attempt {number}"
            # A GPU's fault may be the program's own, and that rank 0 hears nothing of a pod may be its own fault.
            hardens = fault.failure_class not in {FailureClass.GPU, FailureClass.PEER_LOST}
            strict = fault.avoid is Avoid.STRICTLY
            new = avoid.avoid(o, draft, fault.pod.node, why=why, strict=strict, hardens=hardens)
            if new and fault.cordon:
                cordon.wish(o, draft, fault, attempt=number, why=why)


def last_fault(o: Observation, found: Attribution) -> LastFault:
    """The fault for people: what, where, since when."""
    cause, report = found.cause, found.cause.pod.report
    readings = report.evidence if report else ()
    return LastFault(  # type: ignore[call-arg]  # populate_by_name: the alias `class` is a keyword of Python
        time=detected_at(found.cause) or o.now,
        fault_class=cause.failure_class.value,
        node_name=cause.pod.node or None,
        rank=cause.pod.rank,
        gpu=cause.gpu,
        xid=cause.xid,
        verdict=cause.verdict,
        reason=cause.reason[:253],
        action=_action(cause),
        evidence=(cause.message[:1024], *(f"{one.probe}: {one.reading} at {one.at}"[:1024] for one in readings)),
        victims=found.victims,
    )


def _kept(fault: LastFault) -> AttemptFault:
    """What stays of it with its attempt."""
    return AttemptFault(
        time=fault.time,
        fault_class=fault.fault_class,
        node_name=fault.node_name,
        rank=fault.rank,
        gpu_index=fault.gpu.index if fault.gpu else None,
        xid=fault.xid,
        verdict=fault.verdict,
    )


def _action(cause: Fault) -> str:
    """What follows from it for the job; what becomes of its node stands in cordonedNodes."""
    if cause.budget is Budget.NONE:
        return "the job ends"
    where = {Avoid.NO: "", Avoid.RATHER: ", rather elsewhere", Avoid.STRICTLY: ", elsewhere"}[cause.avoid]
    return f"started again{where}" + (f" (rule {cause.rule})" if cause.rule else "")


def _ranks_started(draft: Draft) -> bool:
    return draft.status.recovery.stage in (None, RecoveryStage.FIRST_STEP)


def _may_settle(o: Observation, draft: Draft, found: Attribution) -> bool:
    """Whether to wait for the cause: only a victim spoke, within the last second, and others may still speak.

    Counted from when the operator heard of it: whoever hangs or saves notices, dumps and stops later than its victims.
    """
    if not found.cause.victim or all(pod.stopped for pod in o.members(draft.status.attempt)):
        return False
    noticed = detected_at(found.cause)
    since = o.ended_seconds
    if since is None and noticed is not None:
        since = (o.now - noticed).total_seconds()
    return since is not None and 0 <= since < SETTLE_SECONDS


def begin_next(o: Observation, draft: Draft, found: Attribution, counts: RestartCounts, *, why: str) -> None:
    """Write the next attempt down, whose start `counts` has been charged with. `why`: as of `not_in_place`."""
    if why:
        draft.record(draft.status.attempt, not_in_place=why)
    status, cause = draft.status, found.cause
    attempt.leave(o, draft, counts)
    delay = 0.0
    waits = cause.failure_class == FailureClass.STORAGE or bool(cause.held) or cause.node_may_do_it_again
    if waits or cause.budget in (Budget.APPLICATION, Budget.VOLUNTARY):
        restarts = getattr(counts, cause.budget.value)
        delay = backoff_seconds(restarts, o.spec.recovery, uid=o.job.uid, attempt=status.attempt + 1)
    not_before = (o.now + timedelta(seconds=delay)).astimezone(UTC) if delay else None
    number = attempt.begin(o, draft, reason=cause.reason, stage=RecoveryStage.DRAIN, not_before=not_before)
    noticed = o.now - timedelta(seconds=o.waited)
    # Across two clocks, as the only stage that has to be: the pod says when it noticed, the operator when it heard.
    draft.measure(number, "detect", milliseconds_since(detected_at(found.cause), noticed))
    draft.measure(number, "decide", o.waited * 1000)
    draft.set(reason=cause.reason, message=cause.message + (SOUGHT if cause.victim else ""))
    peers = f"; {found.victims} peers lost it" if found.victims else ""
    later = f" in {delay:.0f} s" if delay else ""
    all_pods = f", with all pods made anew: {why}" if why else ""
    draft.tell(cause.reason, f"{cause.message}{peers}. Attempt {number} starts{later}{all_pods}.", warning=True)
