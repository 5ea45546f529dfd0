"""What a webhook says of a run's life: one payload per kind of event. Pure.

Field names are SimpleTuner's where it has the event, so that its receivers need no change; ours are added beside them
and never replace one. docs/webhook-v1.schema.json describes every payload, and the tests hold them to it. A value that
is not known is null, never left out: a receiver can rely on the key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oarlock_api.contract.exit_codes import ExitCode, FailureClass, failure_class
from oarlock_api.contract.status import PodPhase
from oarlock_api.contract.webhooks import WebhookLevel
from oarlock_api.contract.wire import finite
from oarlock_trainer.agent.webhooks.envelope import (
    CHECKPOINT,
    ERROR,
    PROGRESS,
    STAGE,
    STATUS,
    SUMMARY,
    Identity,
    WebhookEvent,
    event,
)

if TYPE_CHECKING:
    from oarlock_api.contract.report import Report
    from oarlock_api.contract.rounds import RoundEnd
    from oarlock_api.contract.status import PodStatus

_STAGES: dict[str, tuple[str, str]] = {
    PodPhase.PREFLIGHT: ("preflight", "Checking the node"),
    PodPhase.STANDBY: ("standby", "Standing by"),
    PodPhase.STARTING: ("init_load_base_model", "Loading the model"),
    PodPhase.PREPROCESSING: ("init_vae_cache", "Preparing the data"),
    PodPhase.TRAINING: ("training", "Training"),
    PodPhase.SAVING: ("checkpoint_save", "Saving a checkpoint"),
    PodPhase.VALIDATING: ("validation", "Validating"),
    PodPhase.EXPORTING: ("model_save", "Saving the model"),
    PodPhase.DONE: ("training_complete", "Training complete"),
    PodPhase.FAILED: ("training_abort", "Training aborted"),
}
"""Phase -> key and label of its stage; keys are SimpleTuner's where it has such a stage."""


def stage(
    identity: Identity, at: str, *, status: PodStatus, over: bool, level: WebhookLevel, count: int
) -> WebhookEvent:
    """A phase of the pod began, or is over. `count` is how often the pod has been in it."""
    key, label = _STAGES.get(status.phase, (status.phase.lower(), status.phase))
    state = "completed" if over or status.phase == PodPhase.DONE else "running"
    if status.phase == PodPhase.FAILED:
        state = "failed"
    return event(
        identity,
        at,
        type_=STAGE,
        level=level,
        title=label,
        message=f"{label}: {state}",
        step=status.figures.step,
        about=(key, state, count),
        body={"stage": {"key": key, "label": label, "status": state, "progress": _progress(status)}},
    )


def training_status(
    identity: Identity, at: str, *, state: str, level: WebhookLevel, status: PodStatus, message: str, reason: str = ""
) -> WebhookEvent:
    """The attempt trains (started, resumed) or has ended (completed, failed, left). `reason` is a FailureClass or empty."""
    return event(
        identity,
        at,
        type_=STATUS,
        level=level,
        title=f"Training {state}",
        message=message,
        step=status.figures.step,
        about=(state,),
        body={
            "data": {"status": state, "resumed_from_step": status.resumed_from_step, "reason": reason or None},
            "progress": _progress(status),
        },
    )


def restarted(identity: Identity, at: str, *, end: RoundEnd, status: PodStatus) -> WebhookEvent:
    """A fault ended a round, or it can be larger, and all ranks start anew: the attempt goes on."""
    grows = end.code == ExitCode.LEFT_ON_REQUEST
    return event(
        identity,
        at,
        type_=STATUS,
        level=WebhookLevel.INFO if grows else WebhookLevel.WARNING,
        title="Training restarted",
        message=f"{end.why}; {_how(end)}" if grows else f"pod {end.rank}: {end.why}; {_how(end)}",
        step=end.step,
        about=("restarted", end.number),
        body={
            "data": {
                "status": "restarted",
                "resumed_from_step": end.resumed_step,
                "reason": failure_class(end.code).value,
            },
            "progress": _progress(status),
        },
    )


def _how(end: RoundEnd) -> str:
    if end.nodes is not None:
        return f"all ranks start, on {end.nodes} node{'s' if end.nodes > 1 else ''}"
    if end.spare:
        return "a spare takes its place, and all ranks start"
    return "its pod was made anew, and all ranks start" if end.lost_pod else "the ranks start anew in their pods"


def trains_again(identity: Identity, at: str, *, end: RoundEnd, status: PodStatus) -> WebhookEvent:
    """The round after this end has done its first step."""
    since = "after the last round" if end.code == ExitCode.LEFT_ON_REQUEST else "after the fault"
    return event(
        identity,
        at,
        type_=STATUS,
        level=WebhookLevel.INFO,
        title="Training resumed",
        message=f"Training resumed from step {end.resumed_step or 0}, {end.down_seconds or 0.0:.1f} s {since}",
        step=status.figures.step,
        about=("resumed", end.number),
        body={
            "data": {"status": "resumed", "resumed_from_step": end.resumed_step, "reason": None},
            "progress": _progress(status),
        },
    )


def progress(identity: Identity, at: str, *, status: PodStatus) -> WebhookEvent:
    """How far training is."""
    return event(
        identity,
        at,
        type_=PROGRESS,
        level=WebhookLevel.INFO,
        title="Training progress",
        message=_where(status),
        step=status.figures.step,
        about=(status.figures.step,),
        body={"progress": _progress(status)},
    )


def checkpoint(identity: Identity, at: str, *, status: PodStatus) -> WebhookEvent | None:
    """A checkpoint was committed; None where there is none."""
    saved = status.checkpoint
    if saved is None:
        return None
    label = f"Checkpoint of step {saved.step}"
    return event(
        identity,
        at,
        type_=CHECKPOINT,
        level=WebhookLevel.INFO,
        title=label,
        message=f"{label} saved to {saved.path}",
        step=saved.step,
        about=(saved.step, saved.path),
        body={
            "checkpoint": {
                "path": saved.path,
                "label": label,
                "is_final": saved.step == status.figures.total_steps,
                "saved_at": saved.saved_at,
                "stall_seconds": finite(saved.stall_seconds),
            }
        },
    )


def summary(identity: Identity, at: str, *, status: PodStatus, state: str) -> WebhookEvent:
    """What came out of the attempt, once, at its end."""
    saved = status.checkpoint
    return event(
        identity,
        at,
        type_=SUMMARY,
        level=WebhookLevel.INFO,
        title="Training summary",
        message=f"{state} at {_where(status)}",
        step=status.figures.step,
        about=(),
        body={
            "data": {
                "status": state,
                "total_steps": status.figures.total_steps,
                "epoch": status.figures.epoch,
                "resumed_from_step": status.resumed_from_step,
                "checkpoint_step": saved.step if saved else None,
                "checkpoint_path": saved.path if saved else None,
                "model_path": status.model_path or None,
                "started_at": status.started_at or None,
                "first_step_at": status.first_step_at or None,
                "ended_at": at,
            },
            "progress": _progress(status),
        },
    )


def error(identity: Identity, at: str, *, report: Report) -> WebhookEvent:
    """This pod failed, by itself: a pod that only lost its peers has no error to tell."""
    return event(
        identity,
        at,
        type_=ERROR,
        level=WebhookLevel.ERROR,
        title=f"{_CLASS_WORDS.get(report.failure_class, 'Failure')} on node {identity.node or 'unknown'}",
        message=report.summary,
        step=report.step,
        about=(report.failure_class, report.code),
        body={
            "data": {
                "reason": report.failure_class,
                "code": report.code,
                "checkpoint_step": report.checkpoint_step,
                "first_error_rank": report.first_error_rank,
            }
        },
    )


_CLASS_WORDS: dict[str, str] = {
    FailureClass.HANG: "Hang",
    FailureClass.STORAGE: "Storage failure",
    FailureClass.CONFIGURATION: "Configuration error",
    FailureClass.PREFLIGHT: "Unfit node",
    FailureClass.APPLICATION: "Training error",
    FailureClass.FENCED: "Another job owns the output",
}


def _where(status: PodStatus) -> str:
    step, total, loss = status.figures.step, status.figures.total_steps, finite(status.figures.loss)
    if step is None:
        return "no step yet"
    of_total = f" of {total}" if total else ""
    return f"step {step}{of_total}" + (f", loss {loss:.4g}" if loss is not None else "")


_METRICS = ("epoch", "loss", "learning_rate", "seconds_per_step", "images_per_second", "mfu", "data_wait_share")
"""The figures that docs/webhook-v1.schema.json has, under the names of their attributes."""


def _progress(status: PodStatus) -> dict[str, Any]:
    step, total, pace = status.figures.step, status.figures.total_steps, finite(status.figures.seconds_per_step)
    percent = eta = None
    if step is not None and total:
        percent = round(100.0 * step / total, 1)
        eta = finite(round((total - step) * pace, 1)) if pace else None
    return {
        "label": "Steps",
        "current": step,
        "total": total,
        "percent": percent,
        "eta_seconds": eta,
        "metrics": {name: finite(getattr(status.figures, name)) for name in _METRICS},
    }
