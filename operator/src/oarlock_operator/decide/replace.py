"""Replace: a pod that is lost is made anew by itself, while the others of its gang stand by for the next round.

Intent first, as in `recover`: the number of the new pod, whose place it takes and what that costs are written down in one
status. That the old pod is deleted and the new one is made follows from the status alone, in the same pass or in any later
one. Numbers only grow, so a pod of a name is made once; it is made once the old one has stopped, or nobody can stop it.

Whatever does not fit is left to `recover`: all pods are made anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta

from oarlock_api.contract.exit_codes import FailureClass
from oarlock_api.contract.health import GpuVerdict
from oarlock_api.contract.names import service_name
from oarlock_api.contract.rounds import MAX_LOST
from oarlock_api.contract.status import PodStatus
from oarlock_api.history import RecoveryStage, RecoveryStatus, Replacing
from oarlock_operator.decide import attempt, making
from oarlock_operator.decide.charge import charge
from oarlock_operator.decide.draft import Draft
from oarlock_operator.decide.finish import stop
from oarlock_operator.decide.recover import find_faults, progressed, weigh
from oarlock_operator.decide.teardown import delete, overdue
from oarlock_operator.faults.classify import KILLED, Avoid, Budget, Fault, classify
from oarlock_operator.manifests.service import names_all, selector
from oarlock_operator.model.observation import Observation, Pod
from oarlock_operator.model.plan import SelectAttempt
from oarlock_operator.model.reasons import Reason

LOOK_AGAIN_SECONDS = 1.0
BEYOND_STANDBY = timedelta(seconds=60)
"""By then the pods that stood by have left, or nobody would end their standby."""


def replace(o: Observation, draft: Draft) -> bool:
    """Have lost pods made anew, one by one; True where one was lost now."""
    stage = draft.status.recovery.stage
    if stage not in (None, RecoveryStage.REPLACE):
        return False
    if not making.replaces_pods(o, draft):
        if stage is not None:
            _give_up(o, draft, "lost pods are not made anew one by one any more")
        return False
    _hear_out(o, draft)
    if faults := find_faults(o, draft):
        return _fits(o, draft, faults) and _begin(o, draft, faults)
    if stage is None:
        _delete(o, draft, o.superseded(draft.status.attempt))
        _name_all_again(o, draft)
        return False
    if why := _in_vain(o, draft):
        _give_up(o, draft, why)
        return False
    _carry_out(o, draft)
    if o.progress is not None and _trains(o, draft, o.progress):
        _end(o, draft, o.progress)
    return False


# Whether it may be


def _fits(o: Observation, draft: Draft, faults: Sequence[Fault]) -> bool:
    """Whether new pods for these mend it, and all others wait for them."""
    lost = {fault.pod.rank for fault in faults} | {one.rank for one in draft.status.recovery.replacing}
    # One that was lost a moment ago is no fault yet. Where there are too many, the fault is not theirs.
    missed = lost | {told.rank for told in (o.progress.lost if o.progress else ())}
    if len(missed) > min(MAX_LOST, o.spec.nodes - 1) or not all(_mends(o, draft, fault) for fault in faults):
        return False
    others = [pod for pod in o.of_attempt(draft.status.attempt) if pod.rank not in lost]
    return len(others) == o.spec.nodes - len(lost) and _stand_by(o, draft, others)


def _stand_by(o: Observation, draft: Draft, others: Sequence[Pod]) -> bool:
    """Whether these work, and a pod that is made now is made from the same as they were."""
    source = making.made_from(making.maker(o, draft))
    return all(pod.started and not pod.stopped and not pod.deleting and pod.made_from == source for pod in others)


def _mends(o: Observation, draft: Draft, fault: Fault) -> bool:
    """Whether another pod in the place of this one mends it: the fault is not of the gang's own doing, nor all pods'."""
    pod, ended = fault.pod, fault.pod.ending
    told_to_go = pod.deleting and not pod.gone and not o.on_lost_node(pod)
    # All starts but the first wait before they repeat what the program did.
    waits = fault.budget is Budget.APPLICATION and draft.status.restarts.application > 0
    if fault.victim or told_to_go or waits:
        return False
    refused = ended is not None and ended.code is None and fault.avoid is not Avoid.NO
    # Killed with its agent, and for nothing that a new pod would do again: where the agent lived, it has tried what it could.
    silent = ended is not None and ended.code == KILLED and not pod.report
    killed = silent and not pod.own_limit and fault.reason != Reason.OOM_KILLED
    return {
        FailureClass.NODE_LOST: True,
        FailureClass.PEER_LOST: True,
        FailureClass.GPU: fault.verdict is GpuVerdict.REPLACE_NODE,
        FailureClass.HANG: ended is None,
        FailureClass.PREFLIGHT: fault.gpu is not None or refused,
        FailureClass.APPLICATION: killed,
    }.get(fault.failure_class, False)


# The intent


def _begin(o: Observation, draft: Draft, faults: list[Fault]) -> bool:
    number, going = draft.status.attempt, draft.status.recovery
    found = weigh(o, draft, number, faults, heard=False)
    # The gang that still stands by has not started since: no new pod of its own can have made progress, or failed to.
    trained = going.stage is None
    made_progress = trained and progressed(o, draft)
    counts = charge(o, draft, found.cause, progressed=made_progress, worked=trained, asked_to_go=False)
    if counts is None:
        return stop(o, draft)
    ranks = sorted({fault.pod.rank: fault for fault in faults}.items())
    highest = max(draft.attempt(number).incarnation, *(pod.incarnation for pod in o.pods if pod.attempt == number), 1)
    reached = max(draft.status.round, o.progress.round if o.progress else 1)
    new = tuple(
        Replacing(
            rank=rank,
            incarnation=highest + 1 + index,
            node_name=fault.pod.node or None,
            reason=fault.reason[:253],
            round=reached,
            time=o.now,
        )
        for index, (rank, fault) in enumerate(ranks)
    )
    kept = tuple(one for one in going.replacing if one.rank not in {each.rank for each in new})
    draft.record(number, incarnation=highest + len(new))
    draft.set(
        recovery=RecoveryStatus(
            stage=RecoveryStage.REPLACE.value, stage_start_time=o.now, replacing=tuple(sorted((*kept, *new), key=_rank))
        ),
        restarts=counts,
        reason=found.cause.reason,
        message=found.cause.message,
    )
    if draft.status.last_fault:
        draft.set(last_fault=draft.status.last_fault.model_copy(update={"action": _action(found.cause)}))
    pods = "its pod" if len(new) == 1 else f"{len(new)} pods"
    others = o.spec.nodes - len(draft.status.recovery.replacing)
    message = (
        f"{found.cause.message}. Attempt {number} goes on with {pods} made anew; {others} of {o.spec.nodes} stand by."
    )
    draft.tell(Reason.POD_REPLACED, message, warning=True)
    _carry_out(o, draft)
    draft.again(LOOK_AGAIN_SECONDS)
    return True


def _rank(one: Replacing) -> int:
    return one.rank


def _action(cause: Fault) -> str:
    return "the pod was made anew" + (f" (rule {cause.rule})" if cause.rule else "")


# What follows from it


def _hear_out(o: Observation, draft: Draft) -> None:
    """What pods say at their end of which it was only known that they are silent: their nodes may be broken.

    That it was heard is seen by the reason, which is theirs then. What the loss costs was charged before.
    """
    number, recovery = draft.status.attempt, draft.status.recovery
    silent = [one for one in recovery.replacing if one.reason == Reason.AGENT_SILENT]
    said = [fault for one in silent for pod in _before(o, number, one) if pod.report and (fault := classify(pod))]
    faults = {fault.pod.rank: fault for fault in said if fault.avoid is not Avoid.NO and not fault.victim}
    if not faults:
        return
    cause = weigh(o, draft, number, list(faults.values()), heard=False).cause
    heard = (
        one.model_copy(update={"reason": fault.reason[:253]}) if (fault := faults.get(one.rank)) else one
        for one in recovery.replacing
    )
    draft.set(recovery=recovery.model_copy(update={"replacing": tuple(heard)}), reason=cause.reason)
    if draft.status.last_fault:
        draft.set(last_fault=draft.status.last_fault.model_copy(update={"action": _action(cause)}))
    draft.tell(cause.reason, f"{cause.message}. That is what the pod was lost for.", warning=True)


def _carry_out(o: Observation, draft: Draft) -> None:
    """Delete the pods that are replaced, and make the new ones."""
    number, replacing = draft.status.attempt, draft.status.recovery.replacing
    old = {one.rank: _before(o, number, one) for one in replacing}
    _delete(o, draft, [pod for pods in old.values() for pod in pods])
    wanted = list(_wanted(o, draft))
    if wanted:
        draft.act(making.pods(o, draft, making.maker(o, draft), wanted))
    first = next((one for one in replacing if one.rank == 0), None)
    # One name for each pod stays true where the pod before it is dead: it has no address any more.
    renamed = first is not None and not (names_all(o.spec) and all(pod.stopped for pod in old[0]))
    if first and renamed and o.service and o.service.ours and o.service.incarnation != first.incarnation:
        chosen = selector(o.job, number, first.incarnation)
        draft.act(SelectAttempt(service_name(o.job.name), o.service.uid, chosen))
    if wanted or any(not pod.stopped for pods in old.values() for pod in pods):
        draft.again(LOOK_AGAIN_SECONDS)


def _name_all_again(o: Observation, draft: Draft) -> None:
    """Once the rank 0 before this one is dead, each pod has its name again."""
    number, service = draft.status.attempt, o.service
    narrowed = service is not None and service.ours and service.attempt == number and service.incarnation > 1
    dead = all(pod.stopped for pod in o.superseded(number) if pod.rank == 0)
    if service and narrowed and dead and names_all(o.spec):
        draft.act(SelectAttempt(service_name(o.job.name), service.uid, selector(o.job, number)))


def _delete(o: Observation, draft: Draft, pods: Sequence[Pod]) -> None:
    delete(draft, pods, grace_seconds=o.spec.recovery.fault_grace_period_seconds)


def _wanted(o: Observation, draft: Draft) -> Iterator[making.Wanted]:
    """The new pods that are not made yet, and may be: of no rank two may live, unless nobody can stop the old one."""
    number = draft.status.attempt
    for one in draft.status.recovery.replacing:
        if any((pod.attempt, pod.rank, pod.incarnation) == (number, one.rank, one.incarnation) for pod in o.pods):
            continue
        old = _before(o, number, one)
        if all(pod.stopped or pod.node_lost or o.unreachable(pod) for pod in old):
            dead = bool(old) and all(pod.ending is not None and pod.ending.code is not None for pod in old)
            yield making.Wanted(rank=one.rank, incarnation=one.incarnation, follows_the_dead=dead)


def _before(o: Observation, number: int, one: Replacing) -> list[Pod]:
    """The pods whose place it takes."""
    return [
        pod for pod in o.pods if (pod.attempt, pod.rank) == (number, one.rank) and pod.incarnation < one.incarnation
    ]


# Its end


def _in_vain(o: Observation, draft: Draft) -> str:
    """Why the others need not wait any longer; empty where they may, or do not any more."""
    number, recovery = draft.status.attempt, draft.status.recovery
    if _round_began(o, draft):
        # A model may load and compile for as long as it likes: the agents themselves bound a round's first step.
        return ""
    seconds = o.spec.recovery.standby_seconds
    since = recovery.stage_start_time or o.now
    if o.now - since > timedelta(seconds=seconds) + BEYOND_STANDBY and not _is_known_soon(o, number):
        return f"no round began within standbySeconds ({seconds})"
    stuck = [pod.name for pod in o.superseded(number) if not pod.stopped and overdue(o, pod) and not o.unreachable(pod)]
    if stuck:
        return f"{', '.join(stuck)} did not stop in time"
    lost = {one.rank for one in recovery.replacing}
    others = [pod for pod in o.of_attempt(number) if pod.rank not in lost]
    if any(_wanted(o, draft)) and not _stand_by(o, draft, others):
        return "a new pod would not be made from the same as the others"
    return ""


def _is_known_soon(o: Observation, number: int) -> bool:
    """Whether rank 0's agent has not been heard yet, as by an operator that has just started, or another loss is settling."""
    pods, news = {pod.rank: pod for pod in o.of_attempt(number)}, o.progress
    if news is not None and news.attempt == number:
        told = [(pods.get(one.rank), one.incarnation) for one in news.lost if one.rank != 0]
        return any(pod and pod.incarnation == count and not (pod.stopped or pod.deleting) for pod, count in told)
    first = pods.get(0)
    if first is None or not first.started or first.stopped or first.deleting or first.uid in o.refusing:
        return False
    return o.silent.get(first.uid, 0.0) < BEYOND_STANDBY.total_seconds()


def _give_up(o: Observation, draft: Draft, why: str) -> None:
    """All pods are made anew. The loss was charged when a pod was to be replaced for it."""
    entry = next(iter(draft.status.recovery.replacing), None)
    reason = (entry.reason if entry else None) or Reason.PEER_LOST
    attempt.leave(o, draft, draft.status.restarts)
    number = attempt.begin(o, draft, reason=reason, stage=RecoveryStage.DRAIN)
    message = f"{why[:1].upper()}{why[1:]}, so all pods are made anew"
    draft.set(reason=reason, message=message[:1024])
    draft.tell(reason, f"{message}. Attempt {number} starts.", warning=True)


def _round_began(o: Observation, draft: Draft) -> bool:
    """Whether the gang is whole again, and in a round that it was not in when a pod was lost."""
    number, replacing, news = draft.status.attempt, draft.status.recovery.replacing, o.progress
    if news is None or news.attempt != number:
        # Nobody tells, as at an operator's start: a round that was booked since has ended, and another one followed it.
        return all(draft.status.round > one.round for one in replacing)
    # A new rank 0 tells of no round before there is another one.
    led_anew = any(one.rank == 0 for one in replacing)
    return not news.lost and all(news.round > (1 if led_anew else one.round) for one in replacing)


def _trains(o: Observation, draft: Draft, news: PodStatus) -> bool:
    """Whether the gang has made a step with its new pods, as its leader tells."""
    number, replacing = draft.status.attempt, draft.status.recovery.replacing
    pods = {pod.rank: pod for pod in o.of_attempt(number)}
    new = [pods.get(one.rank) for one in replacing]
    if news.attempt != number or not all(pod is not None and pod.started and not pod.stopped for pod in new):
        return False
    # A trainer of the job's own need not tell of steps.
    return _round_began(o, draft) and (news.figures.step is not None or o.spec.custom is not None)


def _end(o: Observation, draft: Draft, news: PodStatus) -> None:
    number, replacing = draft.status.attempt, draft.status.recovery.replacing
    pods = o.of_attempt(number)
    draft.stage(None, None)
    draft.record(number, node_names=tuple(sorted({pod.node for pod in pods if pod.node}))[:32])
    draft.set(reason=Reason.TRAINING, message=None)
    ranks = {one.rank for one in replacing}
    new = ", ".join(f"{pod.name} on {pod.node}" for pod in pods if pod.rank in ranks)
    step = f", at step {news.figures.step}" if news.figures.step is not None else ""
    draft.tell(Reason.TRAINING_AGAIN, f"attempt {number} goes on with {new}{step}")
