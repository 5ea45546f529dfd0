"""Idle pods: those of an attempt that its round does not need. Which of them are lost, and may be made anew by now.

It costs no budget, as nobody who trains has lost anything. So that one which breaks at its start again and again is not made
without end, each further pod waits as long after the one before it as a start would that is charged.
"""

from __future__ import annotations

import math

from oarlock_api.contract.names import pod_name
from oarlock_operator.decide.backstop import TOGETHER_SECONDS, lost_pods
from oarlock_operator.decide.budgets import backoff_seconds
from oarlock_operator.decide.draft import Draft
from oarlock_operator.decide.teardown import overdue
from oarlock_operator.faults.classify import Fault, classify, missing
from oarlock_operator.model.observation import Observation, Pod, standing_by


def lost(o: Observation, draft: Draft) -> dict[int, Fault]:
    """Rank -> why its pod is lost; none once the gang is done."""
    number = draft.status.attempt
    idle = standing_by(draft.status, number)
    if not idle or any(pod.succeeded for pod in o.members(number)):
        return {}
    pods = [pod for pod in o.of_attempt(number) if pod.rank in idle]
    here = {pod.rank for pod in pods} | {one.rank for one in draft.status.recovery.replacing}
    found = [
        *(fault for fault in lost_pods(o, draft) if fault.pod.rank in idle),
        *(missing(pod_name(o.job.name, number, rank), number, rank) for rank in idle - here),
        *(
            fault
            for pod in pods
            if (fault := classify(pod, overdue=overdue(o, pod), node_lost=o.on_lost_node(pod))) is not None
        ),
    ]
    return {fault.pod.rank: fault for fault in found if _is_due(o, draft, fault)}


def _is_due(o: Observation, draft: Draft, fault: Fault) -> bool:
    """Whether it may be followed by another pod now, and not by another attempt in a moment."""
    pod, recovery = fault.pod, o.spec.recovery
    seconds = backoff_seconds(pod.incarnation, recovery, uid=o.job.uid, attempt=draft.status.attempt)
    wait = min(seconds, seconds - _seconds_since(o, pod))
    if fault.victim and o.ended_seconds is not None:
        # Who lost its peers is seldom the only one.
        wait = max(wait, TOGETHER_SECONDS - o.ended_seconds)
    if wait > 0:
        draft.again(wait)
    return wait <= 0


def _seconds_since(o: Observation, pod: Pod) -> float:
    """For how long it is known: since it had a node; where it never had one, since its end was seen, if that was."""
    if pod.placed_at:
        return (o.now - pod.placed_at).total_seconds()
    return o.ended_seconds if pod.uid and o.ended_seconds is not None else math.inf
