"""Not in place: why a fault has all pods made anew, though recovery.inPlace is Auto. For people; it decides nothing.

Where new processes mend a fault, the agents see to it, and where a lost pod alone is made anew, `replace` does: what comes to
`recover` is the rest, and here it is said which part of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from oarlock_api.contract.exit_codes import FailureClass
from oarlock_api.contract.health import GpuVerdict
from oarlock_api.contract.rounds import MAX_LOST, InPlace
from oarlock_api.history import RecoveryStage
from oarlock_operator import schedulers
from oarlock_operator.decide import asked_to_go, making, room
from oarlock_operator.decide.charge import failed_before
from oarlock_operator.decide.draft import Draft
from oarlock_operator.decide.leader_alone import witnesses
from oarlock_operator.faults.classify import Fault
from oarlock_operator.model.observation import Observation, standing_by
from oarlock_operator.model.reasons import Reason

_GIVEN_UP = "its agents had given up starting ranks anew in their pods"
_AS_BEFORE = {
    FailureClass.STORAGE: "a new pod would meet the same storage",
    FailureClass.PREFLIGHT: "a new pod would most likely fail the same check",
    FailureClass.APPLICATION: _GIVEN_UP,
    FailureClass.HANG: _GIVEN_UP,
    FailureClass.REQUESTED: _GIVEN_UP,
}


def why(o: Observation, draft: Draft, faults: Sequence[Fault]) -> str:
    """In a clause; empty where nobody expects anything else: inPlace is Never, or nothing is broken."""
    causes = [fault for fault in faults if not fault.victim]
    if o.spec.recovery.in_place is not InPlace.AUTO or any(fault.held for fault in faults):
        return ""
    if draft.status.recovery.stage == RecoveryStage.REPLACE and not causes:
        return "the others waited no longer for the pod that was to be made anew"
    if not causes:
        return _GIVEN_UP
    told = next((words for fault in causes if (words := _of_fault(o, draft, fault))), "")
    denied = next((words for fault in causes if (words := room.denied(o, draft, fault.pod))), "")
    return told or _of_gang(o, draft) or denied or _of_others(o, draft, causes)


def _of_fault(o: Observation, draft: Draft, fault: Fault) -> str:
    """Why a new pod in the place of this one would not mend it; empty where it would."""
    pod, ended = fault.pod, fault.pod.ending
    if asked_to_go.is_asked(o, fault):
        return asked_to_go.why_with_all(o, fault)
    if pod.own_limit or fault.reason == Reason.OOM_KILLED:
        return "a new pod would exceed the same limit"
    if fault.verdict is GpuVerdict.RESTART_PROCESS:
        return _GIVEN_UP
    if fault.killed_with_its_agent and failed_before(o, draft):
        return "the program has cost a restart before, without progress since, and later starts wait"
    silent_hang = fault.failure_class is FailureClass.HANG and ended is None
    if fault.killed_with_its_agent or silent_hang or fault.refused_by_node or fault.gpu is not None:
        return ""
    return _AS_BEFORE.get(fault.failure_class, "")


def _of_gang(o: Observation, draft: Draft) -> str:
    """Why no pod of this gang is made anew by itself, or none at this time."""
    if o.spec.nodes == 1:
        return "the gang has no other pod"
    if not making.replaces_pods(o, draft):
        system = schedulers.system_of(draft.status.resolved)
        return "its gang system makes all pods together" if not system.replaces_pods else "gangs have no key"
    trained = draft.status.recovery.stage in (None, RecoveryStage.REPLACE)
    return "" if trained else "the attempt had made no step yet"


def _of_others(o: Observation, draft: Draft, faults: Sequence[Fault]) -> str:
    """Why the others do not wait for new pods in the place of these."""
    number = draft.status.attempt
    pods = o.members(number)
    lost = {fault.pod.rank for fault in faults} | {one.rank for one in draft.status.recovery.replacing}
    missed = lost | {told.rank for told in (o.progress.lost if o.progress else ())}
    others = [pod for pod in pods if pod.rank not in lost]
    heard = witnesses(o.of_attempt(number), o.progress, standing_by(draft.status, number))
    if {fault.pod.rank for fault in faults} == {0} and heard:
        return "rank 0's agent hears none of the others"
    most = MAX_LOST if any(pod.rank not in missed for pod in others) else len(missed) - 1
    if len(missed) > most:
        return f"{len(missed)} pods were lost at once, and at most {most} are made anew by themselves"
    ended = [pod.name for pod in others if not pod.started or pod.stopped or pod.deleting]
    if ended:
        return f"{', '.join(ended[:4])} did not stand by"
    if not making.fit(o, draft, others):
        return "the job or the operator has changed since, and a new pod would not fit the others"
    return "the others could not wait for it"
