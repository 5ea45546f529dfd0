"""An image in which a program ran has that program: a container that does not find it there has a node to blame.

A node that lost its power may keep a broken copy of an image. What a job is made of changes only while it is suspended, so
what ran since then tells.
"""

from __future__ import annotations

from dataclasses import replace

from oarlock_api.contract.exit_codes import FailureClass
from oarlock_api.contract.kubelet_words import NEVER_RAN
from oarlock_operator.decide.draft import Draft
from oarlock_operator.faults.classify import Avoid, Budget, Fault, cannot_run
from oarlock_operator.faults.missing_program import COMMAND_NOT_FOUND
from oarlock_operator.model.observation import Observation
from oarlock_operator.model.reasons import Reason


def blame_the_node(o: Observation, draft: Draft, number: int, fault: Fault) -> Fault:
    """The fault of attempt `number`, as the node's where its pod did not find a program that the image has."""
    ending = fault.pod.ending
    if ending is None or not cannot_run(ending):
        return fault
    # Peers that run a shell do not have what their shells are about to look for.
    by_shell = ending.code == COMMAND_NOT_FOUND and ending.reason not in NEVER_RAN
    # Judged once more while its peers go, it stays what it was.
    judged = draft.status.attempt > number and draft.attempt(draft.status.attempt).reason == Reason.POD_FAILED
    if not (judged or ran_before(draft, number) or (not by_shell and runs_beside(o, number))):
        return fault
    where = fault.pod.node or "its node"
    message = (
        f"pod {fault.pod.name} does not find on {where} the program of an image that has run elsewhere or before: remove "
        f"the image there (crictl rmi), its copy is broken, or its tag was moved"
    )
    return replace(
        fault,
        failure_class=FailureClass.PREFLIGHT,
        reason=Reason.POD_FAILED,
        message=f"{message}. It says: {ending.message}" if ending.message else message,
        budget=Budget.INFRASTRUCTURE,
        avoid=Avoid.RATHER,
    )


def ran_before(draft: Draft, number: int) -> bool:
    """Whether all pods of an earlier attempt started, since the job was last resumed."""
    for known in sorted(draft.status.attempts, key=lambda known: -known.number):
        if known.number < number and known.stage_milliseconds.start is not None:
            return True
        if known.number <= number and known.reason in (None, Reason.RESUMED):
            return False
    return False


def runs_beside(o: Observation, number: int) -> bool:
    """Whether a program of the attempt's pods runs, or has left its report."""
    return any(pod.started and (pod.ending is None or pod.report) for pod in o.of_attempt(number))
