"""status.curve: a run of any length in 64 points, the same whenever and however often it was asked for."""

from __future__ import annotations

import math
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from oarlock_api.contract.figures import Figures
from oarlock_api.progress import MAX_CURVE, CurvePoint
from oarlock_operator.decide.curve import with_figures


def heard(steps: list[int], curve: tuple[CurvePoint, ...] = ()) -> tuple[CurvePoint, ...]:
    for step in steps:
        curve = with_figures(curve, Figures(step=step, loss=1 / step, seconds_per_step=2.0))
    return curve


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=300, unique=True).map(sorted))
def test_it_has_at_most_64_points_from_the_first_to_the_newest(steps: list[int]) -> None:
    curve = heard(steps)
    found = [point.step for point in curve]
    assert len(curve) <= MAX_CURVE
    assert (found[0], found[-1]) == (steps[0], steps[-1])
    assert found == sorted(set(found))


def test_a_long_run_is_drawn_evenly() -> None:
    found = [point.step for point in heard(list(range(1, 100_001, 7)))]
    assert len(found) > MAX_CURVE / 2 - 1
    assert max(later - before for before, later in pairwise(found)) <= 2048 + 7


def test_hearing_of_a_step_again_changes_nothing() -> None:
    curve = heard(list(range(1, 500)))
    assert heard([499], curve) == curve


def test_steps_that_are_done_again_are_drawn_again() -> None:
    curve = with_figures(heard([10, 20, 30, 40]), Figures(step=25, loss=9.0))
    assert [(point.step, point.loss) for point in curve] == [(10, 0.1), (20, 0.05), (25, 9.0)]


def test_a_loss_that_is_not_finite_is_absent() -> None:
    (point,) = with_figures((), Figures(step=1, loss=math.nan, seconds_per_step=1.23456))
    assert (point.loss, point.seconds_per_step) == (None, 1.235)
    assert with_figures((point,), Figures()) == (point,)
