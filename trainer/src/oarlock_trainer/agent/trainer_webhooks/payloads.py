"""SimpleTuner's webhook payloads, understood. Pure: whatever is posted, nothing is raised and nothing is made up.

    raw       a JSON object with `type`: training.status, training.progress, training.checkpoint, lifecycle.stage, gpu.fault,
              error and others. A step stands in progress.current (or data.global_step), its total beside it.
    Discord   a form, or JSON, with `content`. Its texts are for people, but for one: `gpu.fault` is sent by this way alone,
              as the text of a Python dictionary.

Any trainer may post the same: {"type": "training.progress", "progress": {"current": 12, "total": 100,
"metrics": {"loss": 0.31, "learning_rate": 1e-5, "epoch": 1}}}.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from oarlock_api.contract.status import PodPhase
from oarlock_api.contract.wire import integer, number, parse_object, text

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_BYTES = 65536
FORM = "application/x-www-form-urlencoded"

_PHASES = {
    "checkpoint_save": PodPhase.SAVING,
    "checkpoint_save_distiller": PodPhase.SAVING,
    "benchmark_base_model": PodPhase.VALIDATING,
    "validation": PodPhase.VALIDATING,
    "final_validation": PodPhase.VALIDATING,
    "model_save": PodPhase.EXPORTING,
    "training_complete": PodPhase.DONE,
}
"""Stages that are a phase of ours; every other one is a part of the start."""
_TELL_NOTHING = frozenset(
    {
        "notification",
        "training.summary",
        "training.validation",
        "training.metric",
        "debug",
        "debug.image",
        "validation.image",
    }
)
_MILD = frozenset({"warning", "info", "debug"})
_CHECKPOINT = re.compile(r"checkpoint-(\d{1,12})")
_LONGEST = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """So far it has come. `resumed` is the step that the run went on from, None where it does not say."""

    step: int
    total: int | None = None
    epoch: int | None = None
    loss: float | None = None
    learning_rate: float | None = None
    resumed: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """A checkpoint was written."""

    step: int
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Something that is no step has begun, or is `over`."""

    phase: PodPhase
    over: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """A sentence for people."""

    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """The trainer blames a GPU. `index` counts as NVML does; `ends_it`: more than a warning."""

    type: str
    message: str
    ends_it: bool
    index: int | None = None
    name: str = ""
    exception: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Working:
    """It lives, and tells nothing that is of use here."""


Payload = Step | Saved | Stage | Trouble | Fault | Working


class UnknownError(ValueError):
    """It is well-formed, and nothing that is known. The message is the type that it names, or what it is instead."""


def read(body: bytes, content_type: str) -> Payload:
    """What a payload tells. Raises WireError where it is neither JSON nor a form, UnknownError where its type is unknown."""
    written = body.decode(errors="replace")
    if content_type.partition(";")[0].strip().lower() == FORM:
        return _of_message((parse_qs(written).get("content") or [""])[0])
    raw = parse_object(written, max_bytes=MAX_BYTES)
    if "type" not in raw and isinstance(raw.get("content"), str):
        return _of_message(raw["content"])
    return of_event(raw)


def of_event(raw: Mapping[str, Any]) -> Payload:
    """What an event tells."""
    kind = text(raw.get("type"), 64) or text(raw.get("message_type"), 64)
    if kind == "gpu.fault":
        return _fault(raw)
    if kind in ("training.status", "training.progress"):
        return _progress(raw)
    if kind == "training.checkpoint":
        return _checkpoint(raw)
    if kind == "lifecycle.stage":
        return _stage(raw)
    if kind == "error" or (kind == "notification" and text(raw.get("severity")) in ("error", "critical")):
        return Trouble(message=_message(raw))
    if kind in _TELL_NOTHING:
        return Working()
    raise UnknownError(kind or "an object without a type")


def _of_message(content: str) -> Payload:
    """A text for people: at most it holds an event, written as Python would."""
    begin, end = content.find("{'type':"), content.rfind("}")
    if 0 <= begin < end <= MAX_BYTES:
        try:
            event = ast.literal_eval(content[begin : end + 1])
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            event = None
        if isinstance(event, dict):
            return of_event(event)
    return Working()


def _progress(raw: Mapping[str, Any]) -> Payload:
    progress, data = _object(raw.get("progress")), _object(raw.get("data"))
    metrics = _object(progress.get("metrics"))
    if text(data.get("status")) in ("failed", "error", "fatal"):
        return Trouble(message=_message(raw))
    step = _whole(progress.get("current"), data.get("global_step"))
    if step is None:
        return Working()
    return Step(
        step=step,
        total=_whole(progress.get("total"), data.get("total_num_steps")),
        epoch=_whole(metrics.get("epoch"), data.get("epoch")),
        loss=number(metrics.get("loss")),
        learning_rate=number(metrics.get("learning_rate")),
        resumed=_whole(data.get("global_resume_step")),
    )


def _checkpoint(raw: Mapping[str, Any]) -> Payload:
    path = text(_object(raw.get("checkpoint")).get("path"), _LONGEST)
    found = _CHECKPOINT.search(path)
    return Saved(step=int(found[1]), path=path) if found else Working()


def _stage(raw: Mapping[str, Any]) -> Payload:
    stage = _object(raw.get("stage"))
    phase = _PHASES.get(text(stage.get("key"), 64))
    state = text(stage.get("status"), 32)
    if phase is None:
        return Working()
    # The end is a stage that is only ever told as completed.
    return Stage(phase=phase, over=state != "running" and phase is not PodPhase.DONE)


def _fault(raw: Mapping[str, Any]) -> Payload:
    fault = _object(raw.get("fault"))
    gpu = _object(fault.get("gpu"))
    return Fault(
        type=text(fault.get("type"), 64) or "unknown",
        message=_message(raw),
        ends_it=text(raw.get("severity"), 32) not in _MILD,
        index=integer(gpu.get("index")),
        name=text(gpu.get("name"), 64),
        exception=text(fault.get("exception_type"), 64),
    )


def _message(raw: Mapping[str, Any]) -> str:
    return text(raw.get("message"), _LONGEST) or text(raw.get("title"), _LONGEST) or "no message"


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _whole(*values: object) -> int | None:
    """The first that is a whole number which is not negative; 12.0 is one too."""
    for value in values:
        found = number(value)
        if found is not None and 0 <= found < 2**53 and found == int(found):
            return int(found)
    return None
