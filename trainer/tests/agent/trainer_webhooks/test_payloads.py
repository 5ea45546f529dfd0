"""What a trainer's webhooks are understood as: SimpleTuner's payloads, and whatever else is posted."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

import pytest
from simpletuner_events import GPU_FAULT, JSON, STATUS, stage

from oarlock_api.contract.status import PodPhase
from oarlock_api.contract.wire import WireError
from oarlock_trainer.agent.trainer_webhooks.payloads import (
    FORM,
    Fault,
    Saved,
    Stage,
    Step,
    Trouble,
    UnknownError,
    Working,
    of_event,
    read,
)

EVENTS: list[Any] = [
    pytest.param(
        STATUS, Step(step=512, total=1000, epoch=3, loss=0.25, learning_rate=1e-05, resumed=500), id="training.status"
    ),
    pytest.param(
        {"type": "training.progress", "progress": {"current": 7.0, "total": 9}}, Step(step=7, total=9), id="progress"
    ),
    pytest.param({"message_type": "training.progress", "data": {"global_step": 7}}, Step(step=7), id="older name"),
    pytest.param({"type": "training.status", "data": {"status": "starting"}}, Working(), id="no step"),
    pytest.param({**STATUS, "progress": {"current": -1}, "data": {}}, Working(), id="no such step"),
    pytest.param({**STATUS, "progress": {"current": 1.5}, "data": {}}, Working(), id="half a step"),
    pytest.param(
        {"type": "training.status", "data": {"status": "failed"}, "message": "Training failed: no data"},
        Trouble(message="Training failed: no data"),
        id="failed",
    ),
    pytest.param(
        {"type": "training.checkpoint", "checkpoint": {"path": "/output/flux/checkpoint-500", "is_final": False}},
        Saved(step=500, path="/output/flux/checkpoint-500"),
        id="checkpoint",
    ),
    pytest.param({"type": "training.checkpoint", "checkpoint": {"path": "/output/last"}}, Working(), id="no number"),
    pytest.param(stage("checkpoint_save", "running"), Stage(phase=PodPhase.SAVING, over=False), id="saving"),
    pytest.param(stage("checkpoint_save", "completed"), Stage(phase=PodPhase.SAVING, over=True), id="saved"),
    pytest.param(stage("final_validation", "running"), Stage(phase=PodPhase.VALIDATING, over=False), id="validating"),
    pytest.param(stage("model_save", "running"), Stage(phase=PodPhase.EXPORTING, over=False), id="exporting"),
    pytest.param(stage("training_complete", "completed"), Stage(phase=PodPhase.DONE, over=False), id="done"),
    pytest.param(stage("init_vae_cache", "running"), Working(), id="a part of the start"),
    pytest.param(
        GPU_FAULT,
        Fault(
            type="circuit_open",
            message="GPU 1: uncorrectable ECC errors rose by 12",
            ends_it=True,
            index=1,
            name="NVIDIA H100",
        ),
        id="gpu.fault",
    ),
    pytest.param(
        {"type": "gpu.fault", "severity": "warning", "title": "GPU Fault: thermal", "fault": {"type": "thermal"}},
        Fault(type="thermal", message="GPU Fault: thermal", ends_it=False),
        id="GPU warning",
    ),
    pytest.param({"type": "error", "message": "no trackers"}, Trouble(message="no trackers"), id="error"),
    pytest.param(
        {"type": "notification", "severity": "error", "message": "Failed to run"},
        Trouble(message="Failed to run"),
        id="e",
    ),
    pytest.param({"type": "notification", "severity": "info", "message": "hello"}, Working(), id="notification"),
]


@pytest.mark.parametrize(("event", "told"), EVENTS)
def test_an_event_is_understood_as_what_it_tells(event: dict[str, Any], told: object) -> None:
    assert read(json.dumps(event).encode(), JSON) == told


@pytest.mark.parametrize(("event", "told"), EVENTS)
def test_so_it_is_where_discord_is_sent_the_text_of_it(event: dict[str, Any], told: object) -> None:
    content = f"`(my run)` {event}"
    assert read(urlencode({"content": content}).encode(), FORM) == (told if "type" in event else Working())
    assert read(json.dumps({"content": content}).encode(), JSON) == (told if "type" in event else Working())


@pytest.mark.parametrize(
    "text", ["", "Checkpoint: step 5", "{'type': 'gpu.fault", "{'type': open('x')}", "{'type':" * 9000]
)
def test_a_message_for_people_is_a_sign_of_life_and_no_more(text: str) -> None:
    assert read(urlencode({"content": text}).encode(), FORM) == Working()


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"\xff", b"\r\n--boundary"])
def test_what_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(WireError):
        read(body, JSON)


@pytest.mark.parametrize(
    ("event", "words"),
    [({"type": "telemetry"}, "telemetry"), ({"a": 1}, "an object without a type"), ({"type": 5}, "an object without")],
)
def test_what_is_not_known_is_called_so(event: dict[str, Any], words: str) -> None:
    with pytest.raises(UnknownError, match=words):
        of_event(event)
