"""The backstop for hangs: what the operator does when the agent, whose task it is to notice them, is silent itself.

Two witnesses must agree: /status has not answered this process for three times the time that a hang may take, and the
kubelet's own probe of the same agent fails as well. A silence that only the operator hears is its own network's trouble.

Where lost pods are replaced one by one, rank 0's agent says which one it has lost: the gang does not train without it.
Where it has lost all the others, and they live, it is the one that is lost.
"""

from __future__ import annotations

import math
from datetime import datetime

from oarlock_api.contract.exit_codes import ExitCode, FailureClass
from oarlock_api.contract.rounds import LostPod
from oarlock_api.contract.status import PodStatus
from oarlock_operator.decide.draft import Draft
from oarlock_operator.decide.leader_alone import alone
from oarlock_operator.faults.classify import Avoid, Budget, Fault
from oarlock_operator.model.observation import Observation, Pod, standing_by
from oarlock_operator.model.reasons import Reason

SHORTEST_SECONDS, STEPS = 60.0, 5.0
"""A hang is no step for max(60 s, 5 slow steps): the agent's own measure, of which the operator knows the mean only."""
PATIENCE = 3.0
LOST_SECONDS = 2.0
"""How long a pod that rank 0's agent has lost may take to say itself how it ends.

It was silent for five seconds before. After seven its ranks are dead, and a spare would have its place
(docs/rounds.md, leases).
"""
TOGETHER_SECONDS = 5.0
"""Pods that are lost within so long, as by one cut cable, are waited for: they are one fault."""
LEAVING_SECONDS = 30.0
"""The same for one that said goodbye for a reason of its own: it still sees to its processes and its report."""


def allowance(o: Observation, draft: Draft) -> float:
    """Seconds of silence after which the operator acts."""
    progress = draft.status.progress
    step = (progress.seconds_per_step or 0.0) if progress else 0.0
    return PATIENCE * (o.spec.recovery.hang_seconds or max(SHORTEST_SECONDS, STEPS * step))


def silent_agents(o: Observation, draft: Draft) -> list[Fault]:
    """Faults of agents that both witnesses miss, once the attempt has made a step."""
    if draft.status.recovery.stage is not None or not o.silent:
        return []
    patience = allowance(o, draft)
    pods = [pod for pod in o.of_attempt(draft.status.attempt) if not pod.ready and not pod.stopped]
    return [_fault(pod, silence) for pod in pods if (silence := o.silent.get(pod.uid, 0.0)) >= patience]


def lost_pods(o: Observation, draft: Draft) -> list[Fault]:
    """Faults of pods that rank 0's agent has lost, and that say nothing themselves: one that ends soon tells more."""
    news, number = o.progress, draft.status.attempt
    if news is None or news.attempt != number or not news.lost:
        return []
    pods = {pod.rank: pod for pod in o.of_attempt(number)}
    faults, longest, more = [], 0.0, False
    for told in news.lost:
        pod = pods.get(told.rank)
        if pod is None or pod.rank == 0 or pod.incarnation != told.incarnation or pod.stopped or pod.deleting:
            continue
        is_silent, seconds = told.code == ExitCode.PEER_LOST, _lost_for(news, told)
        if (left := (LOST_SECONDS if is_silent else LEAVING_SECONDS) - seconds) > 0:
            draft.again(left)
            more |= is_silent
            continue
        longest = max(longest, seconds)
        message = f"pod 0's agent has lost pod {pod.name} on {pod.node}: {told.why}"
        budget, avoid = Budget.INFRASTRUCTURE, Avoid.RATHER
        faults.append(Fault(pod, FailureClass.PEER_LOST, Reason.AGENT_SILENT, message, budget, avoid))
    if more and longest < TOGETHER_SECONDS:
        return []
    if faults and (fault := alone(o, o.of_attempt(number), standing_by(draft.status, number))):
        return [fault]
    return faults


def _lost_for(news: PodStatus, told: LostPod) -> float:
    """Seconds since it was lost, both by the leader's clock; where that is not told it is long ago."""
    try:
        return (datetime.fromisoformat(news.heartbeat_at) - datetime.fromisoformat(told.lost_at)).total_seconds()
    except (TypeError, ValueError):
        return math.inf


def _fault(pod: Pod, silence: float) -> Fault:
    message = (
        f"the agent of pod {pod.name} on {pod.node} has not answered for {silence:.0f} s, and its readiness probe fails"
    )
    return Fault(pod, FailureClass.HANG, Reason.AGENT_SILENT, message, Budget.APPLICATION)
