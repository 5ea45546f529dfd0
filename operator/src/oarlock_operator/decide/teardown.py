"""Teardown: pods are told to go, and those that can not are taken away, so that no gang waits for ever for a dead node.

A pod is deleted by force only where nobody could do it otherwise: its time is long over, and its node is unreachable or
gone. It may still run behind a cut cable; the fence on the output makes that safe.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from oarlock_api.recovery import ForceDelete
from oarlock_operator.decide.draft import Draft
from oarlock_operator.model.observation import Observation, Pod
from oarlock_operator.model.plan import DeletePods
from oarlock_operator.model.reasons import Reason

DEFAULT_TEARDOWN_SECONDS = 30
TO_FLUSH = timedelta(seconds=10)
"""What containers beside a trainer that has ended have to end by themselves: a log shipper passes on its last lines."""


def delete(draft: Draft, pods: Iterable[Pod], *, grace_seconds: int | None) -> None:
    """Delete those of `pods` that are there, unless they are being deleted already, with no longer a grace than this.

    Whoever evicts a pod gives it minutes to save. A gang that is dead has nothing to save, and is not waited for so long.
    """
    # No grace at all would take a pod from the API while its processes still run: that is `force`, for lost nodes alone.
    grace_seconds = None if grace_seconds is None else max(1, grace_seconds)
    chosen = tuple(
        (pod.name, pod.uid) for pod in pods if not pod.gone and not (pod.deleting and _is_as_short(pod, grace_seconds))
    )
    if chosen:
        draft.act(DeletePods(chosen, grace_seconds))


def free_nodes(o: Observation, draft: Draft) -> list[Pod]:
    """Delete pods in which something runs on though their trainers have ended, and return those that still do.

    They keep GPUs that nobody uses. Pods in which nothing runs any more stay, and with them their logs.
    """
    # What a dead kubelet cannot stop, it cannot tell the end of either: force takes it away in its time.
    pods = [pod for pod in o.pods if pod.still_running and not o.unreachable(pod)]
    due = {pod.uid: (pod.ending.at + TO_FLUSH if pod.ending and pod.ending.at else o.now) for pod in pods}
    grace = o.job.spec.recovery.fault_grace_period_seconds if o.job.spec else DEFAULT_TEARDOWN_SECONDS
    delete(draft, [pod for pod in pods if due[pod.uid] <= o.now], grace_seconds=grace)
    for at in due.values():
        draft.again(min(max((at - o.now).total_seconds(), 1.0), TO_FLUSH.total_seconds()))
    return pods


def _is_as_short(pod: Pod, grace_seconds: int | None) -> bool:
    return grace_seconds is None or pod.grace_seconds is None or pod.grace_seconds <= grace_seconds


def overdue(o: Observation, pod: Pod) -> bool:
    """Whether a pod that is being deleted should have been gone teardownSeconds ago."""
    seconds = o.job.spec.recovery.teardown_seconds if o.job.spec else DEFAULT_TEARDOWN_SECONDS
    return pod.deleting and (pod.delete_by is None or pod.delete_by < o.now - timedelta(seconds=seconds))


def not_stopping(o: Observation) -> list[Pod]:
    """Pods that still run, though their time is long over: a process hangs in the kernel, or its kubelet does."""
    return [pod for pod in o.pods if not pod.stopped and overdue(o, pod)]


def force(o: Observation, draft: Draft) -> bool:
    """Delete by force what is overdue on a lost node; never decides the pass."""
    if o.job.spec and o.job.spec.recovery.force_delete is ForceDelete.NEVER:
        return False
    lost = [pod for pod in o.pods if not pod.gone and pod.deleting and o.unreachable(pod)]
    stuck = [pod for pod in lost if overdue(o, pod)]
    if stuck:
        draft.act(DeletePods(tuple((pod.name, pod.uid) for pod in stuck), grace_seconds=0))
        names = ", ".join(f"{pod.name} on {pod.node}" for pod in stuck[:8])
        draft.tell(Reason.POD_FORCE_DELETED, f"deleting by force, because the node is lost: {names}", warning=True)
    elif lost:
        draft.again(5.0)
    return False
