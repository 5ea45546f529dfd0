"""Asked to go: a pod that somebody deletes, evicts or drains, and whether the gang goes on with the next one of its rank.

Its agent has the whole gang save, and says that it goes once all ranks have ended; the others stand by. Whoever preempts a
pod wants the room of the gang, or takes all of its pods: there the gang goes.
"""

from __future__ import annotations

from oarlock_api.contract.exit_codes import FailureClass
from oarlock_operator.faults.classify import Fault
from oarlock_operator.model.observation import Observation, Pod
from oarlock_operator.model.reasons import Reason

_ALONE = {"", "EvictionByEvictionAPI", "DeletionByTaintManager", "TerminationByKubelet"}
"""Who takes a pod for its node's sake, or by hand: Pod.disrupted."""
_ON_ITS_WAY = {FailureClass.REQUESTED, FailureClass.PEER_LOST, FailureClass.APPLICATION, FailureClass.HANG}


def is_asked(o: Observation, fault: Fault) -> bool:
    """Whether somebody took the pod away, and its program has nothing to do with its end."""
    pod = fault.pod
    if fault.failure_class is FailureClass.REQUESTED:
        return bool(pod.disrupted) or pod.deleting or pod.gone
    return o.asked_to_go(pod)


def goes_alone(pod: Pod) -> bool:
    """Whether whoever takes it wants its node empty, or that pod away; and not the room of the gang."""
    return pod.disrupted in _ALONE


def why_with_all(o: Observation, fault: Fault) -> str:
    """Why all pods go with one that was taken away, in a clause; empty where they need not for that."""
    if not goes_alone(fault.pod):
        return "whoever takes a pod to make room has the whole gang go"
    if o.spec.custom:
        return "where a pod is asked to go, a job's own command ends in all of them"
    ended = fault.pod.ending is not None or fault.pod.gone or bool(fault.pod.disrupted)
    return "" if ended else "a pod that was asked to go has not left in time"


def is_mended(fault: Fault) -> bool:
    """Whether the next pod of the rank is enough, of one that goes alone: it saved, was killed, or broke as it left."""
    return fault.failure_class in _ON_ITS_WAY and fault.reason not in (Reason.OOM_KILLED, Reason.LIMIT_EXCEEDED)
