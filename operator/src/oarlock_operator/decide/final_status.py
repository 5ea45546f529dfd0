"""What pods said when they ended, or began: the last look at rank 0's /status may be seconds older."""

from __future__ import annotations

from collections.abc import Sequence

from oarlock_api.contract.layout import CHECKPOINTS, checkpoint_name
from oarlock_api.progress import LatestCheckpoint
from oarlock_operator.decide.draft import Draft
from oarlock_operator.faults.classify import Fault
from oarlock_operator.manifests.config import below_the_mount, output_directory
from oarlock_operator.model.observation import Observation


def note_steps(draft: Draft, faults: Sequence[Fault]) -> None:
    """Take the step that the pods had reached, for what is done again counts from there."""
    known = draft.status.progress
    told = [said.step for fault in faults if (said := fault.pod.report) and said.step is not None]
    if known is None or known.step is None or not told:
        return
    # A report is a pod's own word: it can't have done more than there is to do.
    reached = min(max(told), known.total_steps or max(told))
    if reached > known.step:
        draft.set(progress=known.model_copy(update={"step": reached}))


def note_final_status(o: Observation, draft: Draft) -> None:
    """Take step and newest checkpoint from the report of the current attempt's rank 0, if it left one."""
    note_saved(o, draft, draft.status.attempt)
    pods = o.of_attempt(draft.status.attempt)
    report = pods[0].report if pods and pods[0].rank == 0 else None
    known = draft.status.progress
    if report is not None and known is not None and report.step is not None:
        left = 0 if report.step == known.total_steps else None
        draft.set(progress=known.model_copy(update={"step": report.step, "eta_seconds": left, "update_time": o.now}))


def note_saved(o: Observation, draft: Draft, number: int) -> None:
    """Take the newest checkpoint from the reports of an attempt's pods: they tell of those that it has saved itself."""
    reports = [pod.report for pod in o.of_attempt(number)]
    steps = [said.checkpoint_step for said in reports if said and said.checkpoint_step is not None]
    _note(o, draft, max(steps, default=0), saved_in=number)


def note_resumed(o: Observation, draft: Draft, step: int) -> None:
    """Take the checkpoint that the current attempt began with, where it is newer than any that was told of."""
    number = draft.status.attempt
    trained = [one for one in draft.status.attempts if one.number < number and one.resumed_from_step is not None]
    saved_in = max((one.number for one in trained if (one.resumed_from_step or 0) < step), default=0)
    if saved_in:
        # None that came later began with it, and whoever finds a newer one begins with that.
        _note(o, draft, step, saved_in=saved_in)


def _note(o: Observation, draft: Draft, step: int, *, saved_in: int) -> None:
    known = draft.status.latest_checkpoint
    # Where another trainer keeps its checkpoints, nobody says.
    if o.spec.training is None or step <= (known.step if known else 0):
        return
    path = f"{output_directory(o.job, o.spec)}/{CHECKPOINTS}/{checkpoint_name(step, saved_in)}"
    draft.set(latest_checkpoint=LatestCheckpoint(step=step, path=path, relative_path=below_the_mount(o.spec, path)))
