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
