"""A run's life is told by its changes: each once, in order, and never faster than anybody can read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from oarlock_api.contract.figures import Figures
from oarlock_api.contract.report import Report
from oarlock_api.contract.rounds import RoundEnd
from oarlock_api.contract.status import CheckpointStatus, PodPhase, PodStatus
from oarlock_trainer.agent.webhooks.envelope import Identity, WebhookEvent
from oarlock_trainer.agent.webhooks.story import Story

AT = "2026-01-31T12:00:00.123Z"
WHO = Identity(job_id="flux", job="flux", namespace="n", job_uid="u", attempt=1, rank=0, node="a", pod="flux-1-0")
FRESH = PodStatus(job_uid="u", pod_uid="p", attempt=1, rank=0, phase=PodPhase.PREFLIGHT, heartbeat_at=AT)
TRAINING = replace(FRESH, phase=PodPhase.TRAINING, first_step_at=AT, figures=Figures(step=1, total_steps=500))
SAVED = CheckpointStatus(step=1, path="/output/flux/step-1-a1", saved_at=AT)


def said(events: list[WebhookEvent]) -> list[str]:
    """Each event in a few words."""
    words = []
    for event in events:
        payload = event.payload
        if event.type == "lifecycle.stage":
            words.append(f"{payload['stage']['key']} {payload['stage']['status']} ({event.level})")
        elif event.type in ("training.status", "training.summary"):
            words.append(f"{event.type} {payload['data']['status']} ({event.level})")
        else:
            words.append(f"{event.type} {payload['step']}")
    return words


def test_a_status_that_only_beats_tells_nothing() -> None:
    story = Story(WHO)
    story.changes(TRAINING, at=AT, now=0.0)
    for second in range(600):
        assert story.changes(replace(TRAINING, heartbeat_at=str(second)), at=AT, now=float(second)) == []


def test_a_stage_is_news_once_and_a_detail_when_it_ends_or_comes_back() -> None:
    story = Story(WHO)
    told = []
    for phase in ("Preflight", "Starting", "Training", "Saving", "Training", "Saving"):
        told += story.changes(replace(FRESH, phase=phase), at=AT, now=0.0)
    assert said(told) == [
        "preflight running (Info)",
        "preflight completed (Debug)",
        "init_load_base_model running (Info)",
        "init_load_base_model completed (Debug)",
        "training running (Info)",
        "training completed (Debug)",
        "checkpoint_save running (Info)",
        "checkpoint_save completed (Debug)",
        "training running (Debug)",
        "training completed (Debug)",
        "checkpoint_save running (Debug)",
    ]
    assert len({event.payload["dedupe_id"] for event in told}) == len(told)


@pytest.mark.parametrize(("step", "word"), [(None, "started"), (0, "resumed"), (100, "resumed")])
def test_training_has_begun_with_its_first_step_and_says_whether_anew(step: int | None, word: str) -> None:
    story = Story(WHO)
    waiting = replace(FRESH, phase=PodPhase.TRAINING, resumed_from_step=step)
    story.changes(waiting, at=AT, now=0.0)
    begun = story.changes(replace(waiting, first_step_at=AT, figures=Figures(step=101)), at=AT, now=1.0)
    assert said(begun) == [f"training.status {word} (Info)"]


def test_each_round_that_ended_is_a_warning_once_and_its_successor_s_first_step_tells_the_time_left() -> None:
    story = Story(WHO)
    first = RoundEnd(number=1, ended_at=AT, rank=1, code=137, why="rank 3 was killed by SIGKILL", step=143)
    second = replace(first, number=2, code=83, why="nothing was heard of it", lost_pod=True)
    story.changes(TRAINING, at=AT, now=0.0)
    told = []
    done = replace(first, resumed_step=140, down_seconds=2.6)
    figures = Figures(step=141, total_steps=151, seconds_per_step=2.0)
    for rounds in ((first,), (first,), (done,), (done,), (done, second)):
        told += story.changes(replace(TRAINING, figures=figures, rounds=rounds), at=AT, now=0.0)
    restarted, resumed, lost = said(told)
    assert (restarted, lost) == ("training.status restarted (Warning)",) * 2
    assert resumed == "training.status resumed (Info)"
    assert told[1].payload["message"] == "Training resumed from step 140, 2.6 s after the fault"
    assert told[1].payload["progress"]["eta_seconds"] == 20.0
    assert [event.payload["data"]["reason"] for event in told] == ["Application", None, "Hang"]
    assert told[0].payload["message"] == "pod 1: rank 3 was killed by SIGKILL; the ranks start anew in their pods"
    assert told[0].payload["step"] == 143
    assert told[2].payload["message"] == "pod 1: nothing was heard of it; its pod was made anew, and all ranks start"
    assert len({event.payload["dedupe_id"] for event in told}) == 3


@pytest.mark.parametrize(
    ("end", "message", "level"),
    [
        ({"lost_pod": True, "spare": True}, "pod 1: lost; a spare takes its place, and all ranks start", "Warning"),
        ({"lost_pod": True, "nodes": 2}, "pod 1: lost; all ranks start, on 2 nodes", "Warning"),
        ({"code": 86, "nodes": 3, "why": "3 can train"}, "3 can train; all ranks start, on 3 nodes", "Info"),
    ],
    ids=["a spare", "fewer nodes", "more nodes"],
)
def test_a_round_of_other_members_is_told_as_that(end: dict[str, Any], message: str, level: str) -> None:
    story = Story(WHO)
    story.changes(TRAINING, at=AT, now=0.0)
    known: dict[str, Any] = {"number": 1, "ended_at": AT, "rank": 1, "code": 82, "why": "lost"} | end
    (told,) = story.changes(replace(TRAINING, rounds=(RoundEnd(**known),)), at=AT, now=0.0)
    assert (told.payload["message"], said([told])) == (message, [f"training.status restarted ({level})"])


def test_progress_is_told_at_most_once_a_minute_however_fast_the_steps_are() -> None:
    story = Story(WHO)
    story.changes(TRAINING, at=AT, now=0.0)
    told = []
    for tick in range(1, 3000):
        told += story.changes(replace(TRAINING, figures=Figures(step=tick + 1)), at=AT, now=tick / 10)
    assert said(told) == [f"training.progress {step}" for step in (601, 1201, 1801, 2401)]


def test_a_slow_step_is_told_when_it_is_done() -> None:
    story = Story(WHO)
    story.changes(TRAINING, at=AT, now=0.0)
    assert story.changes(TRAINING, at=AT, now=500.0) == []
    assert said(story.changes(replace(TRAINING, figures=Figures(step=2)), at=AT, now=501.0)) == ["training.progress 2"]


def test_each_checkpoint_is_told_once() -> None:
    story = Story(WHO)
    story.changes(TRAINING, at=AT, now=0.0)
    saved = replace(TRAINING, checkpoint=SAVED)
    assert said(story.changes(saved, at=AT, now=1.0)) == ["training.checkpoint 1"]
    assert story.changes(saved, at=AT, now=2.0) == []
    again = replace(saved, checkpoint=replace(SAVED, step=9))
    assert said(story.changes(again, at=AT, now=3.0)) == ["training.checkpoint 9"]


@pytest.mark.parametrize(
    ("code", "kind", "word", "level"),
    [
        (None, "", "completed", "Info"),
        (86, "Requested", "left", "Info"),
        (1, "Application", "failed", "Error"),
        (80, "GPU", "failed", "Error"),
        (82, "PeerLost", "failed", "Warning"),
    ],
)
def test_the_end_is_told_by_what_it_was_and_summed_up(code: int | None, kind: str, word: str, level: str) -> None:
    report = code and Report(
        attempt=1, rank=0, pod_uid="p", failure_class=kind, code=code, detected_at=AT, summary="so it was"
    )
    told = Story(WHO).end(report or None, TRAINING, at=AT)
    assert said(told) == [f"training.status {word} ({level})", f"training.summary {word} (Info)"]
    assert told[0].payload["data"]["reason"] == (kind or None)
    assert told[0].payload["message"] == ("so it was" if code else "Training completed")
