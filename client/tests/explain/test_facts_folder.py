"""A job's output directory alone tells its story; what of it is torn or not there is said."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest
from situations import HUNG, UID, line, report

from oarlock.explain import explain
from oarlock.facts.folder import NoOutputError, from_folder, read_output
from oarlock_api.contract.history import MAX_STORY, read_story
from oarlock_api.contract.kept_spec import KeptSpec
from oarlock_api.contract.layout import FINISHED, REPORTS

NOW = datetime(2026, 11, 23, 11, tzinfo=UTC)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An output as agents leave it: a hang in attempt 1, and attempt 2 whose last line a crash has torn."""
    output = tmp_path / "flux"
    history, reports = output / ".oarlock/history", output / ".oarlock/reports"
    for path in (history, reports, output / "checkpoints/step-400-a1", output / "checkpoints/step-420-a2"):
        path.mkdir(parents=True)
    lines = [
        line("AttemptStarted", rank=0, node="node-1", data={"image": "registry.example.com/trainer:1"}),
        line("Stage", time="10:00:20", rank=0, node="node-1", data={"name": "FirstStep", "seconds": 20.0}),
        line("Fault", time="10:30:00", rank=1, node="node-2", reason="Hang", message=HUNG, data={"code": 83}),
        line("AttemptStarted", attempt=2, time="10:31:00", rank=0, node="node-1"),
    ]
    story = "".join(json.dumps(one) + "\n" for one in lines)
    (history / "story.jsonl").write_text(story + '{"version": 1, "time": "2026-11')
    (reports / "1-1.json").write_text(report(83, HUNG, first_error_rank=3).to_json())
    (reports / "1-0.json").write_text("{torn")
    (output / ".oarlock/owner").write_text(json.dumps({"jobUid": UID, "attempt": 2}))
    (output / "checkpoints/step-400-a1/COMMITTED").write_text("0" * 64)
    rows = [{"step": step, "loss": 1 / step, "attempt": 1} for step in range(1, 2001)]
    (output / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"step": 20')
    return output


def test_pods_object_and_operator_are_not_needed(folder: Path) -> None:
    story = explain(from_folder(folder, now=NOW))
    assert (story.name, story.uid, story.directory) == ("flux", UID, str(folder))
    assert story.trouble is not None
    assert (story.trouble.cause, story.trouble.node, story.trouble.first_rank) == ("Hang", "node-2", 3)
    assert [one.first_step_time for one in story.attempts] == ["2026-11-23T10:00:20Z", ""]
    assert (story.now.phase, story.now.cause) == ("Gone", "Gone")
    assert "step 400" in story.now.message, "the newest checkpoint that was committed"
    assert [one.what for one in story.chain] == ["Attempt", "Training", "Hang", "Attempt"]


def test_the_settings_that_the_output_keeps_are_told_where_they_are_of_the_job_of_its_fence(folder: Path) -> None:
    path = folder / ".oarlock/history/spec.json"
    kept = KeptSpec(job=UID, namespace="team", name="flux-full", attempt=2, time="t", spec={"nodes": 2})
    path.write_text(kept.to_json())
    story = explain(from_folder(folder, now=NOW))
    assert (story.namespace, story.name) == ("team", "flux-full")
    assert story.to_json()["settings"] == [{"path": "nodes", "value": "2"}]
    path.write_text(replace(kept, job="another").to_json())
    story = explain(from_folder(folder, now=NOW))
    assert (story.namespace, story.name, story.settings) == ("", "flux", ())
    path.write_text('{"spec": 7')
    assert "the settings" in [one.what for one in from_folder(folder, now=NOW).missing]


def test_what_is_torn_or_not_there_is_said(folder: Path) -> None:
    known = from_folder(folder, now=NOW)
    assert [one.what for one in known.missing] == ["the job's object", "pods and Events", "the report 1-0.json"]


def test_a_curve_is_thinned_out_and_keeps_its_ends(folder: Path) -> None:
    curve = explain(from_folder(folder, now=NOW)).curve
    assert (len(curve), curve[0].step, curve[-1].step) == (512, 1, 2000)


def test_of_a_run_whose_figures_are_too_many_to_be_read_the_curve_still_has_its_beginning(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oarlock.facts.folder.MAX_METRICS", 16_000)
    monkeypatch.setattr("oarlock.facts.folder.METRICS_PIECES", 40)
    steps = [one.step for one in explain(from_folder(folder, now=NOW)).curve]
    assert (steps[0], steps[-1]) == (1, 2000)
    assert max(later - step for step, later in pairwise(steps)) < 70, "no gap is larger than that between two pieces"


def test_a_job_whose_own_agent_asks_says_how_far_it_is_and_how_long_it_takes(folder: Path) -> None:
    rows = [{"step": step, "total": 40, "secondsPerStep": 10.0, "loss": 0.5, "attempt": 2} for step in range(1, 31)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    now = explain(from_folder(folder, now=NOW, phase="Running")).now
    assert (now.phase, now.cause, now.step, now.total_steps, now.eta_seconds) == ("Running", "Starting", 30, 40, 100)
    assert now.message == "attempt 2 trains on node-1: step 30 of 40"
    assert explain(from_folder(folder, now=NOW, phase="Ended")).now.phase == "Ended"


def test_an_attempt_that_left_no_word_of_its_end_ended_when_the_operator_decided_about_it(folder: Path) -> None:
    with (folder / ".oarlock/history/story.jsonl").open("a") as story:
        story.write("\n" + json.dumps(line("Decision", time="10:30:04", reason="NodeLost")) + "\n")
    first = explain(from_folder(folder, now=NOW)).attempts[0]
    assert (first.end_time, first.end_reason) == ("2026-11-23T10:30:04Z", "NodeLost")


def test_a_folder_that_is_no_output_is_refused_with_what_to_give_instead(tmp_path: Path) -> None:
    with pytest.raises(NoOutputError, match="/mnt/nfs/flux-full"):
        from_folder(tmp_path, now=NOW)


def test_a_link_or_a_fifo_in_the_place_of_a_file_is_not_read(folder: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret.json"
    secret.write_text(report(83, "of somebody else", rank=2).to_json())
    (folder / ".oarlock/reports/1-2.json").symlink_to(secret)
    os.mkfifo(folder / ".oarlock/reports/1-3.json")
    (folder / "metrics.jsonl").unlink()
    (folder / "metrics.jsonl").symlink_to(secret)
    known = from_folder(folder, now=NOW)
    assert known.output is not None
    assert ([one["rank"] for one in known.output.reports], known.output.metrics) == ([1], ())
    assert [one.what for one in known.missing][-2:] == ["the report 1-2.json", "the report 1-3.json"]


def test_a_history_that_is_a_link_is_said_and_not_read(folder: Path, tmp_path: Path) -> None:
    story = folder / ".oarlock/history/story.jsonl"
    story.rename(tmp_path / "story.jsonl")
    story.symlink_to(tmp_path / "story.jsonl")
    known = from_folder(folder, now=NOW)
    assert known.output is not None
    assert known.output.history == ()
    assert "the history" in [one.what for one in known.missing]


def test_of_a_file_that_is_too_long_the_end_is_read(folder: Path) -> None:
    story = folder / ".oarlock/history/story.jsonl"
    with story.open("r+") as file:
        file.truncate(3 * MAX_STORY)
        file.seek(0, 2)
        file.write("\n" + json.dumps(line("Stage", attempt=2)) + "\n")
    assert [one.attempt for one in read_story(folder)] == [2]


def test_json_that_is_too_deep_is_passed_over(folder: Path) -> None:
    deep = "[" * 100_000
    (folder / ".oarlock/reports/1-0.json").write_text(deep[:4096])
    (folder / "metrics.jsonl").write_text(f"{deep}\n" + json.dumps({"step": 7, "loss": 1.0}) + "\n")
    known = from_folder(folder, now=NOW)
    assert known.output is not None
    assert [one["step"] for one in known.output.metrics] == [7]


def test_a_checkpoint_that_goes_while_it_is_read_is_passed_over(folder: Path) -> None:
    # As one whose folder retention takes between the listing and the look at it.
    (folder / "checkpoints/step-440-a2").symlink_to(folder / "gone")
    known = from_folder(folder, now=NOW)
    assert known.output is not None
    assert [one["step"] for one in known.output.checkpoints] == [400, 420]


def test_of_reports_no_more_bytes_are_read_than_there_is_room_for(tmp_path: Path) -> None:
    folder = tmp_path / REPORTS
    folder.mkdir(parents=True)
    for rank in range(8):
        (folder / f"1-{rank}.json").write_text('{"a": "' + "x" * 990 + '"}')
    found, missing = read_output(tmp_path, most_reports=3000)
    assert len(found.reports) == 3
    assert "some reports" in {one.what for one in missing}


def without_history(folder: Path, *, finished: int | None = None, by: str = UID) -> str:
    """What is told of the output of ranks that had no agent, the last of whose steps was 2,000."""
    for path in (folder / ".oarlock/history", folder / REPORTS):
        for file in path.iterdir():
            file.unlink()
    rows = [{"step": 2000, "total": 3000, "loss": 0.5, "time": "2026-11-23T10:50:00Z"}]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    if finished is not None:
        (folder / FINISHED).write_text(json.dumps({"jobUid": by, "attempt": 1, "step": finished}))
    now = explain(from_folder(folder, now=NOW)).now
    return f"{now.cause}: {now.message}"


@pytest.mark.parametrize(
    ("finished", "by", "told"),
    [
        (2000, UID, "Succeeded: it ended well after step 2,000; the newest checkpoint is step 400"),
        (1000, UID, "Gone: it left no history; its last step was 2,000 of 3,000, at 2026-11-23T10:50:00Z; the newest"),
        (2000, "another", "Gone: it left no history; its last step was 2,000 of 3,000"),
        (None, UID, "Gone: it left no history; its last step was 2,000 of 3,000"),
    ],
)
def test_a_run_without_agents_has_come_to_its_end_where_its_output_says_so(
    folder: Path, finished: int | None, by: str, told: str
) -> None:
    assert without_history(folder, finished=finished, by=by).startswith(told)


def test_an_end_that_is_no_text_is_none(folder: Path) -> None:
    (folder / FINISHED).write_bytes(b"\xff\xfe")
    assert without_history(folder).startswith("Gone: it left no history")
