"""The end of a job. A terminal phase is written only once its pods have stopped; completionTime comes with it.

The wish to end stands in the status (recovery.stage `Stopping`, with the reason) before a pod is deleted, so that an
operator that starts in between ends the job the same way.
"""

from __future__ import annotations

from oarlock_api.contract.layout import MODEL
from oarlock_api.progress import OutputStatus
from oarlock_api.status import Phase
from oarlock_operator.decide.draft import Draft
from oarlock_operator.manifests.config import output_directory
from oarlock_operator.observation import Observation, Pod
from oarlock_operator.plan import DeletePods

STOPPING = "Stopping"
LOOK_AGAIN_SECONDS = 5.0


def fail(o: Observation, draft: Draft, reason: str, message: str) -> None:
    """Write down that the job is to end in Failed, and why."""
    draft.stage(STOPPING, o.now)
    draft.set(reason=reason, message=message)
    draft.tell(reason, message, warning=True)


def stop(o: Observation, draft: Draft) -> bool:
    """Stop the pods of a job that is to end; once nothing runs any more, say Failed."""
    if draft.status.recovery.stage != STOPPING:
        return False
    running = [pod for pod in o.pods if not pod.stopped]
    if running:
        grace = o.job.spec.recovery.fault_grace_period_seconds if o.job.spec else None
        delete(draft, running, grace_seconds=grace)
        draft.again(LOOK_AGAIN_SECONDS)
        return True
    _end_attempt(o, draft)
    draft.stage(None, None)
    draft.set(phase=Phase.FAILED, failed=1, completion_time=o.now)
    return True


def succeed(o: Observation, draft: Draft) -> bool:
    """Say Succeeded when every rank of the current attempt ended with 0."""
    pods = o.of_attempt(draft.status.attempt)
    if len(pods) < o.spec.nodes or not all(pod.succeeded for pod in pods):
        return False
    if others := [pod for pod in o.of_other_attempts(draft.status.attempt) if not pod.stopped]:
        delete(draft, others, grace_seconds=o.spec.recovery.fault_grace_period_seconds)
        draft.again(LOOK_AGAIN_SECONDS)
        return True
    path = output_directory(o.job, o.spec)
    directory = path.removeprefix(o.spec.output.mount_path.rstrip("/") + "/")
    message = f"all {o.spec.nodes} ranks ended well; the model is in {path}/{MODEL}"
    _end_attempt(o, draft)
    draft.stage(None, None)
    draft.set(
        phase=Phase.SUCCEEDED,
        succeeded=1,
        reason="AllRanksSucceeded",
        message=message,
        completion_time=o.now,
        output=OutputStatus(path=path, relative_path=directory, model=f"{path}/{MODEL}"),
    )
    draft.tell("Succeeded", message)
    return True


def delete(draft: Draft, pods: list[Pod], *, grace_seconds: int | None) -> None:
    """Delete those of `pods` that are there and are not being deleted already."""
    chosen = tuple((pod.name, pod.uid) for pod in pods if not pod.deleting and not pod.gone)
    if chosen:
        draft.act(DeletePods(chosen, grace_seconds))


def _end_attempt(o: Observation, draft: Draft) -> None:
    if draft.status.attempt and draft.attempt(draft.status.attempt).end_time is None:
        draft.record(draft.status.attempt, end_time=o.now)
