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


def test_steps_of_which_no_time_is_known_have_none() -> None:
    rows = [{"attempt": 1, "step": 500, "loss": 0.5, "secondsPerStep": 1.0}]
    (point,) = explain(facts(None, output=output(metrics=rows))).curve
    assert point.time == ""
