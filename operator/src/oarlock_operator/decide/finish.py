"""The end of a job. A terminal phase is written only once its pods have stopped; completionTime comes with it.

The wish to end stands in the status (recovery.stage `Stopping`, with the reason) before a pod is deleted, so that an
operator that starts in between ends the job the same way.
"""

from __future__ import annotations

from oarlock_api.contract.layout import CHECKPOINTS, MODEL, checkpoint_name
from oarlock_api.progress import LatestCheckpoint, OutputStatus
from oarlock_api.status import Phase
from oarlock_api.training import Task
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
    preprocessed = o.spec.training is not None and o.spec.training.task == Task.PREPROCESS
    model = None if preprocessed else f"{path}/{MODEL}"
    made = f"the model is in {model}" if model else f"the embeddings are published below {path}"
    message = f"all {o.spec.nodes} pods ended well; {made}"
    _note_last_words(o, draft, path)
    _end_attempt(o, draft)
    draft.stage(None, None)
    draft.set(
        phase=Phase.SUCCEEDED,
        succeeded=1,
        reason="AllRanksSucceeded",
        message=message,
        completion_time=o.now,
        output=OutputStatus(path=path, relative_path=directory, model=model),
    )
    draft.tell("Succeeded", message)
    return True


def _note_last_words(o: Observation, draft: Draft, path: str) -> None:
    """What rank 0 said when it ended: the last look at its /status may be seconds older."""
    first = o.of_attempt(draft.status.attempt)[0]
    report = first.ending.report if first.ending else None
    if report is None:
        return
    known, saved = draft.status.progress, draft.status.latest_checkpoint
    if known is not None and report.step is not None:
        draft.set(progress=known.model_copy(update={"step": report.step, "eta_seconds": 0, "update_time": o.now}))
    if report.checkpoint_step is not None and (saved is None or saved.step < report.checkpoint_step):
        # Newer than all that was seen, so this attempt saved it.
        name = f"{CHECKPOINTS}/{checkpoint_name(report.checkpoint_step, draft.status.attempt)}"
        root = o.spec.output.mount_path.rstrip("/") + "/"
        draft.set(
            latest_checkpoint=LatestCheckpoint(
                step=report.checkpoint_step,
                path=f"{path}/{name}",
                relative_path=f"{path.removeprefix(root)}/{name}",
            )
        )


def delete(draft: Draft, pods: list[Pod], *, grace_seconds: int | None) -> None:
    """Delete those of `pods` that are there and are not being deleted already."""
    chosen = tuple((pod.name, pod.uid) for pod in pods if not pod.deleting and not pod.gone)
    if chosen:
        draft.act(DeletePods(chosen, grace_seconds))


def _end_attempt(o: Observation, draft: Draft) -> None:
    if draft.status.attempt and draft.attempt(draft.status.attempt).end_time is None:
        draft.record(draft.status.attempt, end_time=o.now)
