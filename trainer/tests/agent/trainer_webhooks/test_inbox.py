"""What becomes of a trainer's events: they wait in the inbox, and are told on as a rank's messages or as claims."""

from __future__ import annotations

import json
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simpletuner_events import GPU_FAULT, JSON, STATUS, stage

from oarlock_api.contract.report import CLAIMED
from oarlock_trainer.agent.trainer_webhooks.inbox import Inbox, Reception
from oarlock_trainer.agent.trainer_webhooks.messages import TrainerMessages
from oarlock_trainer.runtime.channel import Event, Message

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


def story(inbox: Inbox, *, attempt: int = 1) -> TrainerMessages:
    seconds = count(100, 10)
    return TrainerMessages(
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
    assert "loss" not in messages[1].fields, "null would say that it is not finite"


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


def test_what_a_trainer_told_is_forgotten_when_the_next_one_starts_in_its_pod() -> None:
    inbox = Inbox()
    messages = story(inbox)
    for event in (step(41), GPU_FAULT, stage("checkpoint_save", "running")):
        inbox.put(json.dumps(event).encode(), JSON)
    messages.received()
    inbox.put(json.dumps(step(42)).encode(), JSON)
    messages.forget()
    assert (messages.received(), messages.claims()) == ([], [])
    inbox.put(json.dumps(step(41)).encode(), JSON)
    assert kinds(messages.received()) == [("resumed", 40), ("phase", "Training"), ("step", 41)]


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
    messages = story(inbox)
    messages.received()
    found = messages.claims()
    assert messages.claims() == []
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
