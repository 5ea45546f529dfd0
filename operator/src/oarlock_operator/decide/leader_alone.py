"""A leader that has lost all the others: where they answer the operator, its own node is cut off from theirs, and to blame.

One pod cannot tell whether it is cut off or all the others are. They are asked themselves.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from oarlock_api.contract.exit_codes import ExitCode, FailureClass
from oarlock_api.contract.status import PodStatus
from oarlock_operator.faults.classify import Avoid, Budget, Fault
from oarlock_operator.model.observation import Observation, Pod
from oarlock_operator.model.reasons import Reason

LEAST = 2
"""Of two pods that do not reach each other, neither is more likely to be the one that is cut off."""
_MOST_ASKED = 8
"""So many speak for all, in gangs of any size."""


def witnesses(pods: Sequence[Pod], news: PodStatus | None, idle: Collection[int] = ()) -> tuple[Pod, ...]:
    """The pods to ask, where rank 0's agent has lost every other one of `pods`, each by its silence; else none.

    `pods` are the newest of each rank of the attempt that `news` is about; ranks in `idle` are not in its round.
    """
    told = {(one.rank, one.incarnation) for one in (news.lost if news else ()) if one.code == ExitCode.PEER_LOST}
    others = _others(pods, idle)
    lost = all((pod.rank, pod.incarnation) in told and pod.started for pod in others)
    return others[:_MOST_ASKED] if lost and len(others) >= LEAST else ()


def alone(o: Observation, pods: Sequence[Pod], idle: Collection[int] = ()) -> Fault | None:
    """The fault of rank 0's pod, where it is the one that is cut off from the others of these pods."""
    asked = witnesses(pods, o.progress, idle)
    first = next((pod for pod in pods if pod.rank == 0), None)
    if first is None or not asked or not all(pod.uid in o.answering for pod in asked):
        return None
    message = (
        f"pod {first.name} on {first.node} and the {len(_others(pods, idle))} others do not reach one another, and the "
        "operator reaches all of them: most likely that node is cut off from theirs"
    )
    return Fault(first, FailureClass.PEER_LOST, Reason.PEER_LOST, message, Budget.INFRASTRUCTURE, Avoid.RATHER)


def _others(pods: Sequence[Pod], idle: Collection[int]) -> tuple[Pod, ...]:
    """All but rank 0's. A pod that stands by may wait for a node for long, or have ended: that one can say nothing."""
    return tuple(pod for pod in pods if pod.rank != 0 and (pod.rank not in idle or (pod.started and not pod.stopped)))
