"""Replace: a pod that is lost is made anew by itself, while the others of its gang stand by for the next round.

Intent first, as in `recover`: the number of the new pod, whose place it takes and what that costs are written down in one
status. That the old pod is deleted and the new one is made follows from the status alone, in the same pass or in any later
one. Numbers only grow, so a pod of a name is made once. `new_pods` says when; of one that was asked to go it may be there
already (`surge`).

The stage ends with the first step of the next round, which may have gone on without the new pod: with a spare in its place,
or with fewer nodes. That pod is made all the same, and waited for without bound. So is one for a pod that stood by.

Whatever does not fit is left to `recover`: all pods are made anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from oarlock_api.contract.exit_codes import FailureClass
from oarlock_api.contract.health import GpuVerdict
from oarlock_api.contract.rounds import MAX_LOST
from oarlock_api.contract.status import PodStatus
from oarlock_api.history import RecoveryStage, Replacing, Rung
from oarlock_operator.decide import (
    asked_to_go,
    attempt,
    give_way,
    idle_pods,
    made_progress,
    making,
    new_pods,
    next_round,
    room,
    standby,
    surge,
)
from oarlock_operator.decide.charge import charge, failed_before
from oarlock_operator.decide.draft import Draft
from oarlock_operator.decide.finish import stop
from oarlock_operator.decide.made_progress import last_round
from oarlock_operator.decide.recover import find_faults, weigh
from oarlock_operator.decide.teardown import overdue
from oarlock_operator.faults.classify import Avoid, Budget, Fault, classify
from oarlock_operator.model.observation import Observation, Pod, gang_size, standing_by
from oarlock_operator.model.reasons import Reason

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
    next_round.note_round(o, draft)
    if faults := find_faults(o, draft):
        return _answer(o, draft, faults)
    if stage is not None and (why := _in_vain(o, draft)):
        _give_up(o, draft, why)
        return False
    new_pods.number_anew(o, draft)
    _follow_idle(o, draft)
    give_way.give_way(o, draft)
    surge.surge(o, draft)
    if stage is None:
        new_pods.delete_superseded(o, draft, o.superseded(draft.status.attempt))
        new_pods.name_all_again(o, draft)
    new_pods.ask_again(o, draft)
    new_pods.carry_out(o, draft)
    if o.progress is not None and o.progress.attempt == draft.status.attempt:
        if stage is None:
            _forget(o, draft, o.progress)
            _note_nodes(o, draft)  # a gang grows, or takes a spare, without a stage
        elif next_round.trains(o, draft, o.progress):
            _end(o, draft, o.progress)
    return False


def _answer(o: Observation, draft: Draft, faults: list[Fault]) -> bool:
    if _more_are_leaving(o, draft, faults):
        draft.again(new_pods.LOOK_AGAIN_SECONDS)
        return True
    return _fits(o, draft, faults) and _begin(o, draft, faults)


# Whether it may be


def _fits(o: Observation, draft: Draft, faults: Sequence[Fault]) -> bool:
    """Whether new pods for these mend it, and all others wait for them."""
    lost = {fault.pod.rank for fault in faults} | {one.rank for one in draft.status.recovery.replacing}
    # One that was lost a moment ago is no fault yet. Where there are too many, the fault is not theirs.
    missed = lost | {told.rank for told in (o.progress.lost if o.progress else ())}
    replaceable = all(_mends(o, draft, fault) and not room.denied(o, draft, fault.pod) for fault in faults)
    members = _members(o, draft)
    if len(missed) > MAX_LOST or members <= missed or not replaceable:
        return False
    others = [pod for pod in o.members(draft.status.attempt) if pod.rank not in lost]
    if len(others) != len(members - lost):
        return False
    return _work(o, others) if _are_made(o, draft, faults) else _stand_by(o, draft, others)


def _more_are_leaving(o: Observation, draft: Draft, faults: Sequence[Fault]) -> bool:
    """Whether others that were asked to go, as these were, are about to have left as well: the gang has saved, or does."""
    if _are_made(o, draft, faults):
        return False  # the gang trains with them by now
    leaving = [pod for pod in o.members(draft.status.attempt) if o.asked_to_go(pod) and not pod.stopped]
    asked = all(asked_to_go.is_asked(o, fault) and _mends(o, draft, fault) for fault in faults)
    return bool(leaving) and asked and not any(overdue(o, pod) for pod in leaving)


def _are_made(o: Observation, draft: Draft, faults: Sequence[Fault]) -> bool:
    """Whether the next pods of all these are there already."""
    return all(surge.made(o, draft, fault.pod.rank) for fault in faults)


def _members(o: Observation, draft: Draft) -> frozenset[int]:
    """Ranks of the pods that the round has."""
    number = draft.status.attempt
    return frozenset(range(gang_size(o.spec, draft.status, number))) - standing_by(draft.status, number)


def _stand_by(o: Observation, draft: Draft, others: Sequence[Pod]) -> bool:
    """Whether these work, and a pod that is made now is made from the same as they were."""
    train_on = {one.rank for one in draft.status.recovery.surging}
    rest = [pod for pod in others if pod.rank not in train_on]
    return _work(o, others) and not any(pod.deleting for pod in rest) and making.fit(o, draft, others)


def _work(o: Observation, others: Sequence[Pod]) -> bool:
    """Whether these are there, or go alone: as soon as the gang stands by, or once their next pods are ready."""
    return all(
        pod.started and not pod.stopped and (not pod.deleting or (asked_to_go.goes_alone(pod) and not overdue(o, pod)))
        for pod in others
    )


def _mends(o: Observation, draft: Draft, fault: Fault) -> bool:
    """Whether another pod in the place of this one mends it: the fault is not of the gang's own doing, nor all pods'."""
    pod, ended = fault.pod, fault.pod.ending
    # All starts but the first wait before they repeat what the program did.
    waits = fault.budget is Budget.APPLICATION and failed_before(o, draft)
    if asked_to_go.is_asked(o, fault):
        if asked_to_go.why_with_all(o, fault):
            return False
        if asked_to_go.is_mended(fault):
            return True
    if fault.victim or waits:
        return False
    # Killed with its agent, and for nothing that a new pod would do again: where the agent lived, it has tried what it could.
    killed = fault.killed_with_its_agent and not pod.own_limit and fault.reason != Reason.OOM_KILLED
    return {
        FailureClass.NODE_LOST: True,
        FailureClass.PEER_LOST: True,
        FailureClass.GPU: fault.verdict is GpuVerdict.REPLACE_NODE,
        FailureClass.HANG: ended is None,
        FailureClass.PREFLIGHT: fault.gpu is not None or fault.refused_by_node,
        FailureClass.APPLICATION: killed,
    }.get(fault.failure_class, False)


# The intent


def _begin(o: Observation, draft: Draft, faults: list[Fault]) -> bool:
    number, going = draft.status.attempt, draft.status.recovery
    found = weigh(o, draft, number, faults, heard=False)
    furthest = made_progress.of_lost_pod(o, draft)
    counts = charge(
        o,
        draft,
        found.cause,
        furthest=furthest,
        worked=going.stage is None,
        asked_to_go=asked_to_go.is_asked(o, found.cause),
    )
    if counts is None:
        return stop(o, draft)
    _write_down(o, draft, faults)
    recovery, members = draft.status.recovery, _members(o, draft)
    lost = members & {one.rank for one in recovery.replacing}
    said = " ".join(filter(None, (f"{found.cause.message}.", standby.instead(o, draft, lost))))
    draft.set(
        recovery=recovery.model_copy(
            update={"stage": RecoveryStage.REPLACE.value, "stage_start_time": o.now, "not_before_time": None}
        ),
        restarts=counts,
        reason=found.cause.reason,
        message=said,
    )
    draft.answer_fault(_action(found.cause))
    count = len({fault.pod.rank for fault in faults})
    pods = "its pod" if count == 1 else f"{count} pods"
    how = f"Attempt {number} goes on with {pods} made anew; {len(members - lost)} of {len(members)} stand by."
    draft.tell(Reason.POD_REPLACED, f"{said} {how}", warning=True)
    new_pods.carry_out(o, draft)
    draft.again(new_pods.LOOK_AGAIN_SECONDS)
    return True


def _write_down(o: Observation, draft: Draft, faults: Sequence[Fault]) -> None:
    """Which pods are made anew for these faults as well; their numbers are taken. One that is there already has its own."""
    number, recovery = draft.status.attempt, draft.status.recovery
    lost = dict(sorted({fault.pod.rank: fault for fault in faults}.items()))
    made = {rank: one for rank in lost if (one := surge.made(o, draft, rank))}
    reached = max(draft.status.round, o.progress.round if o.progress else 1)
    others = [rank for rank in lost if rank not in made]
    first = new_pods.numbers(o, draft, len(others))
    numbers = {rank: (first + index, reached) for index, rank in enumerate(others)}
    numbers |= {rank: (one.incarnation, one.round) for rank, one in made.items()}
    new: dict[int, Replacing] = {}
    for rank, (incarnation, round_) in numbers.items():
        anew = Replacing(
            rank=rank,
            incarnation=incarnation,
            node_name=lost[rank].pod.node or None,
            reason=lost[rank].reason[:253],
            round=round_,
            time=o.now,
        )
        ended = new_pods.seen_to_end(new_pods.before(o, number, anew))
        new[rank] = anew.model_copy(update={"ended": ended or None})
    known = draft.attempt(number).replaced_node_names
    left = dict.fromkeys((*known, *(one.node_name for one in new.values() if one.node_name)))
    draft.record(number, replaced_node_names=tuple(left)[-32:])
    new_pods.write_down(draft, {one.rank: one for one in recovery.replacing} | new)


def _follow_idle(o: Observation, draft: Draft) -> None:
    """Have lost pods made anew that the round does not need; it goes on."""
    number, recovery = draft.status.attempt, draft.status.recovery
    lost = idle_pods.lost(o, draft)
    faults = {rank: fault for rank, fault in lost.items() if not room.denied(o, draft, fault.pod)}
    known = {one.rank for one in recovery.replacing}
    new = [rank for rank in sorted(faults) if rank not in known][: new_pods.places_for_idle(known)]
    chosen = [faults[rank] for rank in sorted(faults) if rank in known or rank in new]
    others = [pod for pod in o.members(number) if pod.rank not in known]
    if not chosen or not _stand_by(o, draft, others):
        return
    _write_down(o, draft, chosen)
    # Of one that nobody has seen it is not known whether it ever was: a quota may have refused it.
    seen = [fault for fault in chosen if fault.pod.uid]
    said = f"{chosen[0].pod.name} is not there"
    if seen:
        cause = weigh(o, draft, number, seen, heard=False).cause
        said = cause.message
        draft.answer_fault(_action(cause))
    pods = "The pod is" if len(chosen) == 1 else f"{len(chosen)} pods are"
    draft.tell(Reason.POD_REPLACED, f"{said}. The round does without it. {pods} made anew.", warning=True)


def _action(cause: Fault) -> str:
    return "the pod was made anew" + (f" (rule {cause.rule})" if cause.rule else "")


# What follows from it


def _hear_out(o: Observation, draft: Draft) -> None:
    """What pods say at their end of which it was only known that they are silent: their nodes may be broken.

    That it was heard is seen by the reason, which is theirs then. What the loss costs was charged before.
    """
    number, recovery = draft.status.attempt, draft.status.recovery
    silent = [one for one in recovery.replacing if one.reason == Reason.AGENT_SILENT]
    said = [
        fault for one in silent for pod in new_pods.before(o, number, one) if pod.report and (fault := classify(pod))
    ]
    faults = {fault.pod.rank: fault for fault in said if fault.avoid is not Avoid.NO and not fault.victim}
    if not faults:
        return
    cause = weigh(o, draft, number, list(faults.values()), heard=False).cause
    heard = (
        one.model_copy(update={"reason": fault.reason[:253]}) if (fault := faults.get(one.rank)) else one
        for one in recovery.replacing
    )
    draft.set(recovery=recovery.model_copy(update={"replacing": tuple(heard)}))
    if recovery.stage is not None:
        draft.set(reason=cause.reason)
    draft.answer_fault(_action(cause))
    draft.tell(cause.reason, f"{cause.message}. That is what the pod was lost for.", warning=True)


# Its end


def _in_vain(o: Observation, draft: Draft) -> str:
    """Why the others need not wait any longer; empty where they may, or do not any more."""
    number, recovery = draft.status.attempt, draft.status.recovery
    if next_round.began(o, draft):
        # A model may load and compile for as long as it likes: the agents themselves bound a round's first step.
        return ""
    seconds = o.spec.recovery.standby_seconds
    since = recovery.stage_start_time or o.now
    if o.now - since > timedelta(seconds=seconds) + BEYOND_STANDBY and not _is_known_soon(o, number):
        return f"no round began within standbySeconds ({seconds})"
    stuck = [pod.name for pod in o.superseded(number) if overdue(o, pod) and not room.is_free(o, draft, pod)]
    if stuck:
        return f"{', '.join(stuck)} did not stop in time"
    lost = {one.rank for one in recovery.replacing}
    others = [pod for pod in o.members(number) if pod.rank not in lost]
    if any(new_pods.wanted(o, draft)) and not _stand_by(o, draft, others):
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
    draft.record(draft.status.attempt, not_in_place=why)
    attempt.leave(o, draft, draft.status.restarts)
    number = attempt.begin(o, draft, reason=reason, stage=RecoveryStage.DRAIN)
    message = f"{why[:1].upper()}{why[1:]}, so all pods are made anew"
    draft.set(reason=reason, message=message[:1024])
    draft.tell(reason, f"{message}. Attempt {number} starts.", warning=True)


def _end(o: Observation, draft: Draft, news: PodStatus) -> None:
    """The next round has made a step. Pods that it went on without are made all the same."""
    number, recovery = draft.status.attempt, draft.status.recovery
    replacing = recovery.replacing
    trains = recovery.model_copy(update={"stage": None, "stage_start_time": None})
    draft.set(recovery=trains, reason=Reason.TRAINING)
    draft.set(message=None)
    _forget(o, draft, news)
    _note_nodes(o, draft)
    pods, ranks = o.members(number), {one.rank for one in replacing}
    new = ", ".join(f"{pod.name} on {pod.node}" for pod in pods if pod.rank in ranks)
    left = len(_members(o, draft))
    fewer = f", on {left} of {o.spec.nodes} nodes" if left < o.spec.nodes else ""
    step = f", at step {news.figures.step}" if news.figures.step is not None else ""
    last = last_round(draft)
    spare = ", with a spare in a lost pod's place" if last and last.rung == Rung.TAKE_SPARE else ""
    draft.tell(Reason.TRAINING_AGAIN, f"attempt {number} goes on{f' with {new}' if new else ''}{spare}{fewer}{step}")


def _note_nodes(o: Observation, draft: Draft) -> None:
    number = draft.status.attempt
    nodes = attempt.nodes_of(o.members(number))
    if nodes and nodes != draft.attempt(number).node_names:
        draft.record(number, node_names=nodes)


def _forget(o: Observation, draft: Draft, news: PodStatus) -> None:
    """Nothing is left to do for a new pod that the leader knows."""
    recovery = draft.status.recovery
    left = tuple(one for one in recovery.replacing if not next_round.is_there(o, draft, one, news))
    if left != recovery.replacing:
        draft.set(recovery=recovery.model_copy(update={"replacing": left}))
