from __future__ import annotations

from collections.abc import Iterable

import pytest

from oarlock_api.contract.figures import Figures
from oarlock_api.progress import Progress
from oarlock_operator.decide.time_left import seconds_left

TOTAL = 10_000


def estimates(paces: Iterable[float], *, began_at: int = 0, each: int = 1) -> list[float]:
    """Of a job that is looked at after each so many steps, the last of which took so long: the pace of each estimate."""
    found, before = [], None
    for place, seconds in enumerate(paces):
        step = began_at + 1 + place * each
        left = seconds_left(before, Figures(step=step, total_steps=TOTAL, seconds_per_step=seconds), began_at=began_at)
        assert left is not None
        found.append(left / (TOTAL - step))
        before = Progress(step=step, total_steps=TOTAL, eta_seconds=left)
    return found


@pytest.mark.parametrize("each", [1, 30])
def test_the_time_left_does_not_jump_where_steps_take_longer_and_shorter_in_turn(each: int) -> None:
    known = estimates([1.0, 3.0] * 50, each=each)[40:]
    assert max(known) < 1.05 * min(known)
    assert known[-1] == pytest.approx(2.0, rel=0.05)


@pytest.mark.parametrize("began_at", [0, 500])
def test_the_first_step_which_compiles_is_forgotten_at_once(began_at: int) -> None:
    first, *others = estimates([60.0, 2.0, 2.0], began_at=began_at)
    assert first == 60.0
    assert others == pytest.approx([2.0, 2.0], abs=0.01)


def test_one_step_that_stalls_moves_it_by_a_twentieth() -> None:
    *_, before, after = estimates([2.0] * 50 + [200.0])
    assert after == pytest.approx(before * 1.05, rel=0.001)


def test_a_pace_that_has_changed_for_good_is_followed() -> None:
    assert estimates([2.0] * 50 + [6.0] * 150)[-1] == pytest.approx(6.0, rel=0.01)


def test_where_no_step_was_done_since_the_last_look_it_stays() -> None:
    before = Progress(step=5, total_steps=15, eta_seconds=20)
    for step in (4, 5):
        figures = Figures(step=step, total_steps=15, seconds_per_step=9.0)
        assert seconds_left(before, figures, began_at=0) == 2 * (15 - step)


@pytest.mark.parametrize("before", [None, Progress(), Progress(step=15, total_steps=15, eta_seconds=0)])
def test_without_an_estimate_before_the_last_step_tells(before: Progress | None) -> None:
    assert seconds_left(before, Figures(step=5, total_steps=15, seconds_per_step=2.0), began_at=0) == 20
