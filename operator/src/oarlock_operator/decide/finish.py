"""The end of a job. A terminal phase is written only once its pods have stopped; completionTime comes with it.

The wish to end stands in the status (recovery.stage `Stopping`, with the reason) before a pod is deleted, so that an
operator that starts in between ends the job the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from oarlock_api.contract.health import GpuVerdict
from oarlock_api.contract.layout import DATA_MANIFEST, EVALUATION_REPORT, MODEL
from oarlock_api.history import RecoveryStage
from oarlock_api.progress import OutputStatus
from oarlock_api.spec import TrainingJobSpec
from oarlock_api.status import Phase
from oarlock_api.training import Task
from oarlock_operator.decide import attempt, queue
from oarlock_operator.decide.draft import Draft
from oarlock_operator.decide.final_status import note_final_status
from oarlock_operator.decide.teardown import delete, free_nodes
from oarlock_operator.manifests.config import below_the_mount, output_directory
from oarlock_operator.model.observation import Observation, Pod, gang_size
from oarlock_operator.model.reasons import Reason

LOOK_AGAIN_SECONDS = 5.0
LONGEST_MESSAGE = 4096
SEE_THE_END = timedelta(seconds=15)
"""For how long pods that stood by are not told to go: their agents see that the others are done."""


def fail(o: Observation, draft: Draft, reason: str, message: str) -> None:
    """Write down that the job is to end in Failed, and why."""
    queue.leave(o, draft)
    attempt.close(o, draft, reason)
    draft.stage(RecoveryStage.STOPPING, o.now)
    # A thousand pods may each have words of their own; a status that the API does not take would end no job.
    draft.set(reason=reason, message=message[:LONGEST_MESSAGE])
    draft.tell(reason, message, warning=True)


def stop(o: Observation, draft: Draft) -> bool:
    """Stop the pods of a job that is to end; once nothing runs any more, say Failed."""
    if draft.status.recovery.stage != RecoveryStage.STOPPING:
        return False
    running = [pod for pod in o.pods if not pod.stopped]
    held = free_nodes(o, draft)
    if running:
        grace = o.job.spec.recovery.fault_grace_period_seconds if o.job.spec else None
        delete(draft, running, grace_seconds=None if _saves(draft) else grace)
        draft.again(LOOK_AGAIN_SECONDS)
        return True
    if held:
        return True
    if o.job.status.recovery.stage != RecoveryStage.STOPPING and draft.actions:
        # The end is final: whatever is to be done to nodes for it has its turn, and another one, before it is written.
        draft.again(0)
        return True
    if o.job.spec and _saves(draft):
        note_final_status(o, draft)
    attempt.end(o, draft, draft.status.attempt)
    draft.stage(None, None)
    draft.set(phase=Phase.FAILED, failed=1, completion_time=o.now)
    return True


def _saves(draft: Draft) -> bool:
    """Whether this is one of the failures in which nothing is broken: the pods may still save."""
    reason, fault = draft.status.reason, draft.status.last_fault
    if reason == Reason.INFRASTRUCTURE_RESTARTS_EXHAUSTED:
        return fault is not None and fault.verdict == GpuVerdict.HOLD
    return reason in {Reason.DEADLINE_EXCEEDED, Reason.GPU_WARNING}


def succeed(o: Observation, draft: Draft) -> bool:
    """Say Succeeded when every rank of the current attempt ended with 0."""
    number = draft.status.attempt
    trained = _trained(o, draft)
    if draft.status.recovery.stage == RecoveryStage.SUSPENDED or not trained:
        return False
    ended = {pod.uid for pod in trained}
    left = [pod for pod in o.pods if pod.uid not in ended and not pod.stopped]
    if _leave_by_themselves(o, number, trained, left):
        draft.again(1.0)
        return True
    if left:
        delete(draft, left, grace_seconds=o.spec.recovery.fault_grace_period_seconds)
        names = ", ".join(f"{pod.name} on {pod.node}" for pod in left[:8])
        draft.set(reason=Reason.STOPPING, message=f"every rank ended well; these pods still stop: {names}")
        draft.again(LOOK_AGAIN_SECONDS)
        return True
    if held := free_nodes(o, draft):
        names = ", ".join(f"{pod.name} on {pod.node} ({', '.join(pod.still_running)})" for pod in held[:8])
        draft.set(
            reason=Reason.STOPPING, message=f"every rank ended well; other containers of these pods still run: {names}"
        )
        return True
    path = output_directory(o.job, o.spec)
    model, made = _made(o.spec, path)
    note_final_status(o, draft)
    saved = draft.status.latest_checkpoint
    if draft.status.progress is None and saved is not None and model:
        made += f"; no step was left to do: the output held the checkpoint of step {saved.step} already"
    message = f"all {len(trained)} pods ended well; {made}"
    attempt.close(o, draft, Reason.ALL_RANKS_SUCCEEDED)
    attempt.end(o, draft, draft.status.attempt)
    draft.stage(None, None)
    draft.set(
        phase=Phase.SUCCEEDED,
        succeeded=1,
        reason=Reason.ALL_RANKS_SUCCEEDED,
        message=message,
        completion_time=o.now,
        output=OutputStatus(
            path=path,
            relative_path=below_the_mount(o.spec, path),
            model=model,
            data_manifest=_data_manifest(o.spec, path),
            metrics=_metrics(draft),
        ),
    )
    draft.tell(Reason.SUCCEEDED, message)
    return True


def _trained(o: Observation, draft: Draft) -> tuple[Pod, ...]:
    """The pods that trained to the end, where all of them ended with 0; none before.

    Of a gang that goes on without some of its pods, one that has not started since was none of them.
    """
    number = draft.status.attempt
    pods = o.members(number)
    if gang_size(o.spec, draft.status, number) > o.spec.nodes or o.spec.elastic:
        pods = tuple(pod for pod in pods if pod.started)
        enough = bool(pods) and pods[0].rank == 0
    else:
        enough = len(pods) >= o.spec.nodes
    return pods if enough and all(pod.succeeded for pod in pods) else ()


def _leave_by_themselves(o: Observation, number: int, trained: Sequence[Pod], left: Sequence[Pod]) -> bool:
    """Whether those that stood by may still see that the gang is done, and end with 0 as well."""
    ended = max((pod.ending.at for pod in trained if pod.ending and pod.ending.at), default=None)
    idle = {pod.rank for pod in o.of_attempt(number) if pod.rank not in {one.rank for one in trained}}
    stand_by = all((pod.attempt, pod.started, pod.deleting) == (number, True, False) for pod in left)
    return (
        bool(left)
        and stand_by
        and {pod.rank for pod in left} <= idle
        and ended is not None
        and o.now - ended < SEE_THE_END
    )


def _made(spec: TrainingJobSpec, path: str) -> tuple[str | None, str]:
    """Where the finished model is, if there is one that is known, and words for what the job made below `path`."""
    if spec.training is None:
        return None, f"what the trainer made is where it put it; the job's output directory is {path}"
    if spec.training.task == Task.PREPROCESS:
        return None, f"the embeddings are cached, {path}/{DATA_MANIFEST} tells where"
    if spec.training.task == Task.EVALUATE:
        return None, f"the model is judged in {path}/{EVALUATION_REPORT}"
    return f"{path}/{MODEL}", f"the model is in {path}/{MODEL}"


def _metrics(draft: Draft) -> dict[str, float]:
    """The last loss that was told; everything else stands in the output's own files."""
    progress = draft.status.progress
    return {} if progress is None or progress.loss is None else {"loss": progress.loss}


def _data_manifest(spec: TrainingJobSpec, path: str) -> str | None:
    return None if spec.training is None else f"{path}/{DATA_MANIFEST}"
