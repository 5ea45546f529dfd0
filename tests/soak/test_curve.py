"""What the curve of a soak is judged by: each thing that must not be is seen, and nothing where all is well."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.soak.curve import Curve, Line, parse

EXPECTED = {1: 0.5, 2: 0.4, 3: 0.3, 4: 0.2}


class Told:
    """A curve, and what is told of it, a second apart."""

    def __init__(self, *, tolerance: float = 0.0, unheard: int = 0) -> None:
        self.curve = Curve(Path("none"), EXPECTED, tolerance=tolerance, unheard=unheard)
        self.at = 0.0

    def start(self, attempt: int, step: int = 0) -> None:
        self._take(attempt, step, None)

    def steps(self, attempt: int, *steps: int) -> None:
        for step in steps:
            self._take(attempt, step, EXPECTED[step])

    def _take(self, attempt: int, step: int, loss: float | None) -> None:
        self.at += 1
        self.curve.take(Line(at=self.at, attempt=attempt, step=step, loss=loss))


def test_starts_from_earlier_steps_and_new_attempts_are_no_violation() -> None:
    told = Told()
    told.start(1)
    told.steps(1, 1, 2, 3)
    told.start(1, 1)
    told.steps(1, 2, 3)
    told.start(2, 2)
    told.steps(2, 3, 4)
    assert told.curve.violations == []
    assert told.curve.losses == EXPECTED
    assert told.curve.again == 3


def test_another_loss_than_the_undisturbed_runs_is_one() -> None:
    told = Told()
    told.start(1)
    told.curve.take(Line(at=2.0, attempt=1, step=1, loss=0.5000001))
    assert len(told.curve.violations) == 1


def test_a_gang_of_another_size_may_add_in_another_order_and_no_more() -> None:
    told = Told(tolerance=1e-4)
    told.start(1)
    for step, loss in ((1, 0.50004), (2, 0.4001)):
        told.curve.take(Line(at=2.0, attempt=1, step=step, loss=loss))
    assert ["step 2" in words for words in told.curve.violations] == [True]


@pytest.mark.parametrize("step", [1, 2, 4])
def test_a_step_out_of_turn_is_one_as_of_a_round_that_still_runs(step: int) -> None:
    told = Told()
    told.start(1)
    told.steps(1, 1, 2, step)
    assert ["it was the turn of step 3" in words for words in told.curve.violations] == [True]


@pytest.mark.parametrize(("unheard", "violations"), [(0, 2), (1, 1), (2, 0)])
def test_an_older_attempt_may_train_on_only_where_a_node_of_its_own_was_out_of_reach(
    unheard: int, violations: int
) -> None:
    told = Told(unheard=unheard)
    told.start(1)
    told.steps(1, 1, 2)
    told.start(2, 1)
    told.steps(1, 3)
    told.start(3, 1)
    told.steps(2, 2)
    told.steps(3, 2, 3)
    assert len(told.curve.violations) == violations


def test_a_start_counts_once_a_step_of_its_attempt_came_after_it() -> None:
    told = Told()
    told.start(1)
    told.steps(1, 1)
    told.start(1, 1)
    told.start(2)
    assert told.curve.start_after(2.5) is None
    told.steps(2, 1)
    start = told.curve.start_after(2.5)
    assert start is not None
    assert (start.attempt, start.at) == (2, 4.0)
    assert told.curve.longest_pause(2.5) == 2.5


def test_a_file_is_followed_to_its_last_whole_line(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    line = {"time": "2026-01-01T00:00:00Z", "attempt": 1}
    lines = [{**line, "step": 0, "startSeconds": {}}, {**line, "step": 1, "loss": 0.5}, {**line, "step": 1, "saved": 1}]
    text = "".join(json.dumps(each) + "\n" for each in lines)
    curve = Curve(path, EXPECTED)
    curve.look()
    path.write_text(text[:100])
    curve.look()
    assert curve.losses == {}
    path.write_text(text + '{"cut o\n')
    curve.look()
    assert (curve.losses, curve.violations, len(curve.lines)) == ({1: 0.5}, [], 2)
    assert parse(b"") is None
