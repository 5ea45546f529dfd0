"""Asked to go: a pod that somebody deletes, evicts or drains, and whether the gang goes on with the next one of its rank.

Its agent has the whole gang save, and says that it goes once all ranks have ended; the others stand by. Whoever preempts a
pod wants the room of the gang, or takes all of its pods: there the gang goes.
"""

from __future__ import annotations

from oarlock_api.contract.exit_codes import FailureClass
from oarlock_operator.faults.classify import Fault
from oarlock_operator.model.observation import Observation

_ALONE = {"", "EvictionByEvictionAPI", "DeletionByTaintManager", "TerminationByKubelet"}
"""Who takes a pod for its node's sake, or by hand: Pod.disrupted."""


def is_asked(o: Observation, fault: Fault) -> bool:
    """Whether somebody took the pod away, and its program has nothing to do with its end."""
    pod = fault.pod
    if fault.failure_class is FailureClass.REQUESTED:
        return bool(pod.disrupted) or pod.deleting or pod.gone
    return o.asked_to_go(pod)


def why_with_all(fault: Fault) -> str:
    """Why all pods go with one that was taken away, in a clause; empty where the next one of its rank is enough."""
    if fault.pod.disrupted not in _ALONE:
        return "whoever takes a pod to make room has the whole gang go"
    saved_or_killed = fault.failure_class is FailureClass.REQUESTED or fault.killed_with_its_agent
    return "" if saved_or_killed else "a pod that was asked to go neither left in time nor was killed"
