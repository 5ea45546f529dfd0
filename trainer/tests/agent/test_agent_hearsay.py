"""What a trainer's webhooks are understood as: SimpleTuner's payloads, and whatever else is posted."""

from __future__ import annotations

import json
from itertools import count
from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oarlock_api.contract.report import CLAIMED
from oarlock_api.contract.status import PodPhase
from oarlock_api.contract.wire import WireError
from oarlock_trainer.agent.hearsay.hearsay import Hearsay
from oarlock_trainer.agent.hearsay.inbox import Inbox, Reception
from oarlock_trainer.agent.hearsay.payloads import (
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
from oarlock_trainer.channel import Event, Message

JSON = "application/json"
STATUS: dict[str, Any] = {
    "type": "training.status",
    "message_type": "training.status",
    "job_id": "job-1",
    "title": "Running",
    "timestamp": 1767225600,
    "data": {
        "status": "running",
        "final_epoch": 9,
        "global_step": 512,
        "total_num_steps": 1000,
        "global_resume_step": 500,
    },
    "progress": {
        "current": 512,
        "total": 1000,
        "metrics": {"loss": 0.25, "parent_loss": 0.5, "learning_rate": 1e-05, "epoch": 3},
    },
}
GPU_FAULT: dict[str, Any] = {
    "type": "gpu.fault",
    "severity": "critical",
    "job_id": None,
    "title": "GPU Fault: circuit_open",
    "message": "GPU 1: uncorrectable ECC errors rose by 12",
    "fault": {
        "type": "circuit_open",
        "gpu": {"index": 1, "name": "NVIDIA H100", "temperature_celsius": 61.0, "ecc_errors_double": 12},
        "action_taken": "circuit_opened",
    },
}


def stage(key: str, status: str) -> dict[str, Any]:
    return {"type": "lifecycle.stage", "severity": "info", "stage": {"key": key, "label": "A stage", "status": status}}


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


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda below: (
        st.lists(below, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["data", "progress", "metrics", "current", "stage", "key", "fault", "gpu", "index", "path"]
            ),
            below,
        )
    ),
    max_leaves=12,
)
KINDS = [
    "gpu.fault",
    "training.status",
    "training.progress",
    "training.checkpoint",
    "lifecycle.stage",
    "error",
    "notification",
]


@given(
    st.sampled_from(KINDS),
    st.dictionaries(st.sampled_from(["data", "progress", "stage", "fault", "checkpoint"]), ANYTHING),
)
def test_whatever_stands_in_an_event_it_is_read_and_told_in_words_that_can_be_sent(
    kind: str, event: dict[str, Any]
) -> None:
    inbox = Inbox()
    body = json.dumps({"type": kind, **event}).encode()
    if len(body) < 65536:
        assert inbox.put(body, JSON) is Reception.TAKEN
        assert story(inbox).received()


# The inbox


def test_news_wake_whoever_waits_for_the_descriptor_and_are_taken_once() -> None:
    inbox = Inbox()
    assert inbox.put(json.dumps(STATUS).encode(), JSON) is Reception.TAKEN
    assert len(inbox.take()) == 1
    assert inbox.take() == []


def test_what_is_unknown_malformed_or_too_much_is_counted() -> None:
    inbox = Inbox()
    inbox.put(b"{}", JSON)
    inbox.put(b"nonsense", JSON)
    for _ in range(1025):
        last = inbox.put(json.dumps(STATUS).encode(), JSON)
    assert last is Reception.LOST
    assert inbox.counts == {"taken": 1024, "ignored": 1, "refused": 1, "lost": 1}


def test_each_unknown_type_is_named_in_the_log_once_and_not_for_ever(caplog: pytest.LogCaptureFixture) -> None:
    inbox = Inbox()
    caplog.set_level("INFO")
    for number in (*range(50), *range(50)):
        inbox.put(json.dumps({"type": f"kind-{number}"}).encode(), JSON)
    assert len(caplog.records) == 16
    assert inbox.counts["ignored"] == 100


# The story


def story(inbox: Inbox, *, attempt: int = 1) -> Hearsay:
    seconds = count(100, 10)
    return Hearsay(
        inbox, rank=4, attempt=attempt, now=lambda: float(next(seconds)), stamp=lambda: "2026-01-01T00:00:00Z"
    )


def told(*events: dict[str, Any], attempt: int = 1) -> list[Message]:
    inbox = Inbox()
    for event in events:
        inbox.put(json.dumps(event).encode(), JSON)
    return story(inbox, attempt=attempt).received()


def step(number: int, **more: Any) -> dict[str, Any]:
    return {"type": "training.progress", "progress": {"current": number, "total": 100}, **more}


def kinds(messages: list[Message]) -> list[tuple[str, Any]]:
    return [
        (str(message.event), message.fields.get("step", message.fields.get("name", message.fields.get("message"))))
        for message in messages
    ]


def test_steps_are_told_as_a_rank_tells_them_with_the_pace_that_they_come_at() -> None:
    messages = told(step(1), step(5))
    assert kinds(messages) == [("phase", "Training"), ("step", 1), ("step", 5)]
    assert [message.fields["secondsPerStep"] for message in messages[1:]] == [None, 2.5]
    assert {message.rank for message in messages} == {4}
    assert messages[1].fields["total"] == 100


def test_what_is_told_before_the_first_new_step_is_no_step() -> None:
    resumed = {"data": {"global_resume_step": 500}}
    messages = told(step(500, **resumed), step(501, **resumed), step(501, **resumed))
    assert kinds(messages) == [
        ("resumed", 500),
        ("working", None),
        ("phase", "Training"),
        ("step", 501),
        ("working", None),
    ]
    assert kinds(told(step(0), step(1))) == [("working", None), ("phase", "Training"), ("step", 1)]


def test_a_later_attempt_that_does_not_say_goes_on_from_before_its_first_step() -> None:
    assert kinds(told(step(41), step(42), attempt=2)) == [
        ("resumed", 40),
        ("phase", "Training"),
        ("step", 41),
        ("step", 42),
    ]
    assert ("resumed", 40) not in kinds(told(step(41), attempt=1))


def test_saving_and_validating_end_where_they_began_and_after_the_last_step_in_the_export() -> None:
    messages = told(
        stage("benchmark_base_model", "running"),
        stage("benchmark_base_model", "completed"),
        step(1),
        stage("checkpoint_save", "running"),
        stage("checkpoint_save", "completed"),
        stage("model_save", "running"),
        stage("final_validation", "running"),
        stage("final_validation", "completed"),
        stage("training_complete", "completed"),
    )
    phases = [name for kind, name in kinds(messages) if kind == "phase"]
    assert phases == [
        *("Validating", "Starting", "Training", "Saving", "Training"),
        *("Exporting", "Validating", "Exporting", "Done"),
    ]


def test_checkpoints_and_troubles_are_shown() -> None:
    saved, trouble = told(
        {"type": "training.checkpoint", "checkpoint": {"path": "/output/checkpoint-9"}},
        {"type": "error", "message": "oh"},
    )
    assert saved == Message(
        Event.CHECKPOINT, 4, {"step": 9, "path": "/output/checkpoint-9", "savedAt": "2026-01-01T00:00:00Z"}
    )
    assert trouble == Message(Event.NOTE, 4, {"message": "oh"})


def claimed(event: dict[str, Any]) -> list[Any]:
    inbox = Inbox()
    inbox.put(json.dumps(event).encode(), JSON)
    hearsay = story(inbox)
    hearsay.received()
    found = hearsay.claims()
    assert hearsay.claims() == []
    return found


@pytest.mark.parametrize(("severity", "verdict"), [("critical", "RestartProcess"), ("warning", "Hold")])
def test_a_gpu_that_is_blamed_is_a_claim_and_never_more(severity: str, verdict: str) -> None:
    (claim,) = claimed({**GPU_FAULT, "severity": severity})
    assert (claim.verdict, claim.gpu.index, claim.evidence.value) == (verdict, 1, "circuit_open")
    assert claim.evidence.probe in CLAIMED
    assert claim.summary == "GPU 1 is blamed by the trainer (circuit_open): GPU 1: uncorrectable ECC errors rose by 12"


@pytest.mark.parametrize(
    "message",
    ["CUDA out of memory. Tried to allocate 2 GiB", "NCCL error: ncclRemoteError", "collective mismatch: 3 and 4"],
)
def test_memory_that_ran_out_and_peers_that_were_lost_are_no_gpus_fault_whatever_it_calls_them(message: str) -> None:
    assert claimed({**GPU_FAULT, "message": message}) == []
