"""What rank 0 said when it ended: the last look at its /status may be seconds older."""

from __future__ import annotations

from collections.abc import Sequence

from oarlock_api.contract.layout import CHECKPOINTS, checkpoint_name
from oarlock_api.progress import LatestCheckpoint
from oarlock_operator.decide.draft import Draft
from oarlock_operator.faults.classify import Fault
from oarlock_operator.manifests.config import below_the_mount, output_directory
from oarlock_operator.observation import Observation


def note_steps(draft: Draft, faults: Sequence[Fault]) -> None:
    """Take the step that the pods had reached, for what is done again counts from there."""
    known = draft.status.progress
    told = [fault.report.step for fault in faults if fault.report and fault.report.step is not None]
    if known is None or known.step is None or not told:
        return
    # A report is a pod's own word: it can't have done more than there is to do.
    reached = min(max(told), known.total_steps or max(told))
    if reached > known.step:
        draft.set(progress=known.model_copy(update={"step": reached}))


def note_last_words(o: Observation, draft: Draft) -> None:
    """Take step and newest checkpoint from the report of the current attempt's rank 0, if it left one."""
    pods = o.of_attempt(draft.status.attempt)
    report = pods[0].ending.report if pods and pods[0].rank == 0 and pods[0].ending else None
    if report is None:
        return
    known, saved = draft.status.progress, draft.status.latest_checkpoint
    if known is not None and report.step is not None:
        left = 0 if report.step == known.total_steps else None
        draft.set(progress=known.model_copy(update={"step": report.step, "eta_seconds": left, "update_time": o.now}))
    # Where another trainer keeps its checkpoints, its report does not say.
    built_in = o.spec.training is not None
    if built_in and report.checkpoint_step is not None and (saved is None or saved.step < report.checkpoint_step):
        # Newer than all that was seen, so this attempt saved it.
        name = checkpoint_name(report.checkpoint_step, draft.status.attempt)
        path = f"{output_directory(o.job, o.spec)}/{CHECKPOINTS}/{name}"
        draft.set(
            latest_checkpoint=LatestCheckpoint(
                step=report.checkpoint_step,
                path=path,
                relative_path=below_the_mount(o.spec, path),
            )
        )
