"""The points of the curve: which lines of metrics.jsonl count, and when their steps were done."""

from __future__ import annotations

from situations import facts, line, output

from oarlock.explain import explain


def test_a_line_about_pictures_takes_no_step_from_the_curve_and_its_seconds_count() -> None:
    rows = [
        {"attempt": 1, "step": 1, "loss": 0.5, "secondsPerStep": 1.0},
        {"attempt": 1, "step": 1, "evaluationLoss": {"unseen": 0.4}},
        {"attempt": 1, "step": 1, "validation": {"pictures": 2, "seconds": 30.0}},
        {"attempt": 1, "step": 2, "loss": 0.4, "secondsPerStep": 1.0},
    ]
    began = line("Stage", time="10:00:20", rank=0, data={"name": "FirstStep", "seconds": 20.0})
    first, second = explain(facts(None, output=output(began, metrics=rows))).curve
    assert (first.loss, first.time) == (0.5, "2026-11-23T10:00:20.000Z")
    assert (second.loss, second.time) == (0.4, "2026-11-23T10:00:51.000Z")


def test_losses_on_unseen_data_are_told_by_step_and_a_step_that_was_evaluated_again_counts_once() -> None:
    rows = [
        {
            "attempt": 1,
            "step": 20,
            "evaluationLoss": {"unseen": 0.5, "other": None},
            "time": "2026-11-23T10:05:00.000Z",
        },
        {"attempt": 1, "step": 10, "evaluationLoss": {"unseen": 0.6}},
        {"attempt": 2, "step": 20, "evaluationLoss": {"unseen": 0.4}},
        {"attempt": 2, "step": 30, "evaluationLoss": "none"},
    ]
    story = explain(facts(None, output=output(metrics=rows)))
    assert [(one.data_set, one.step, one.loss, one.attempt) for one in story.unseen] == [
        ("unseen", 10, 0.6, 1),
        ("unseen", 20, 0.4, 2),
    ]
    assert story.curve == ()


def test_steps_of_which_no_time_is_known_have_none() -> None:
    rows = [{"attempt": 1, "step": 500, "loss": 0.5, "secondsPerStep": 1.0}]
    (point,) = explain(facts(None, output=output(metrics=rows))).curve
    assert point.time == ""


def test_a_line_that_says_when_it_was_written_is_believed_and_those_without_follow_it() -> None:
    rows = [
        {"attempt": 1, "step": 1, "loss": 0.5, "secondsPerStep": 1.0},
        {"attempt": 1, "step": 2, "loss": 0.4, "secondsPerStep": 1.0, "time": "2026-11-23T10:05:00.000Z"},
        {"attempt": 1, "step": 3, "loss": 0.3, "secondsPerStep": 2.0, "time": "yesterday"},
    ]
    began = line("Stage", time="10:00:20", rank=0, data={"name": "FirstStep", "seconds": 20.0})
    points = explain(facts(None, output=output(began, metrics=rows))).curve
    assert [point.time[11:19] for point in points] == ["10:00:20", "10:05:00", "10:05:02"]


def step(number: int, loss: float, *, attempt: int = 1) -> dict[str, object]:
    return {"attempt": attempt, "step": number, "loss": loss, "secondsPerStep": 1.0}


def test_where_training_went_back_within_an_attempt_the_later_steps_count_and_those_after_them_are_gone() -> None:
    rows = [step(1, 0.9), step(2, 0.8), step(3, 0.7), step(4, 0.6), step(2, 0.81), step(3, 0.71)]
    points = explain(facts(None, output=output(metrics=rows))).curve
    assert [(point.step, point.loss) for point in points] == [(1, 0.9), (2, 0.81), (3, 0.71)]


def test_what_was_evaluated_after_the_step_that_training_went_back_to_is_gone_too() -> None:
    unseen = {"evaluationLoss": {"unseen": 0.4}, "attempt": 1}
    rows = [step(1, 0.9), {"step": 1, **unseen}, step(2, 0.8), {"step": 2, **unseen}, step(2, 0.81), step(3, 0.7)]
    story = explain(facts(None, output=output(metrics=rows)))
    assert [one.step for one in story.unseen] == [1]
    assert [point.step for point in story.curve] == [1, 2, 3]
