"""A rank that is slow for long is found, and named; nothing else is taken for one."""

from __future__ import annotations

from statistics import median

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oarlock_trainer.loop import slow_rank
from oarlock_trainer.loop.slow_rank import EVERY, LEAST, WINDOW, SlowRanks

RANKS = 8


def steps(count: int, *, seed: int = 1, ranks: int = RANKS) -> np.ndarray:
    """Forward passes of one second, give or take five percent, as batches and clocks make them."""
    return np.random.default_rng(seed).normal(1.0, 0.05, (count, ranks)).clip(0.7)


def found(times: np.ndarray) -> list[tuple[int, int | None]]:
    """After which step which rank was called slow, or none any more."""
    watch = SlowRanks()
    return [(step, watch.slow.rank if watch.slow else None) for step, row in enumerate(times, 1) if watch.take(row)]


def wandering(count: int, *, seed: int, ranks: int) -> np.ndarray:
    """As machines are: passes with a long tail, resolutions that all share, clocks that wander by some percent."""
    draw = np.random.default_rng(seed)
    times = draw.lognormal(0.0, 0.04, (count, ranks)) + 0.3 * (draw.random((count, ranks)) < 0.02)
    shapes = draw.choice([0.6, 1.0, 1.7], count)[:, None]
    clocks = np.zeros((count, ranks))
    for step in range(1, count):
        clocks[step] = 0.98 * clocks[step - 1] + draw.normal(0.0, 0.003, ranks)
    return times * shapes * (1.0 + clocks)


@pytest.mark.parametrize("ranks", [2, 8, 32])
def test_of_a_thousand_clean_steps_none_is_reported(ranks: int) -> None:
    assert found(steps(1000, ranks=ranks)) == []


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("ranks", [2, 8, 32])
def test_nor_of_a_thousand_whose_clocks_wander_and_whose_shapes_change(ranks: int, seed: int) -> None:
    times = wandering(1000, seed=seed, ranks=ranks)
    assert found(times) == []
    times[::3, 0] = 0.0  # and whose data stall
    assert found(times) == []
    times[300:, 1] *= 1.2
    assert [rank for _, rank in found(times)] == [1], "it is found among them all the same"


def test_of_a_thousand_steps_with_stalled_data_none_is_reported() -> None:
    """One rank waits for its data in half of its steps, and computes slowly beside what prepares them."""
    times = steps(1000)
    times[::2, 3] = 0.0
    times[1::4, 5] = 0.0
    assert found(times) == []


def test_steps_that_stall_once_or_compile_or_stand_still_for_a_few_are_no_slow_rank() -> None:
    times = steps(1000)
    times[::7, 2] *= 4.0
    times[0:3, 4] *= 60.0
    times[500:515, 6] *= 3.0
    assert found(times) == []


@pytest.mark.parametrize("ranks", [2, 8, 32])
def test_a_rank_that_is_fifteen_percent_slower_is_reported_within_a_window_and_no_sooner_than_confirmed(
    ranks: int,
) -> None:
    times = steps(300, ranks=ranks)
    times[100:, 1] *= 1.15
    ((step, rank),) = found(times)
    assert rank == 1
    assert 100 + LEAST - EVERY <= step <= 100 + WINDOW + EVERY


def test_it_is_over_once_it_is_as_fast_again_and_told_once() -> None:
    times = steps(600)
    times[100:300, 1] *= 1.2
    assert [rank for _, rank in found(times)] == [1, None]


def test_around_the_threshold_it_does_not_flip() -> None:
    times = steps(2000)
    times[:, 1] *= 1.10
    assert len(found(times)) <= 1


def test_less_than_thirty_steps_confirm_nothing() -> None:
    times = steps(LEAST - 1)
    times[:, 1] *= 3.0
    assert found(times) == []


@given(st.lists(st.one_of(st.just(0.0), st.floats(0.01, 100.0)), min_size=1, max_size=9))
def test_a_rank_is_held_against_the_median_of_the_others_that_tell_something(seconds: list[float]) -> None:
    ratios = slow_rank._ratios(np.asarray(seconds))
    for rank, own in enumerate(seconds):
        others = [one for other, one in enumerate(seconds) if other != rank and one > 0]
        expected = own / median(others) if own > 0 and others else float("nan")
        assert ratios[rank] == pytest.approx(expected, nan_ok=True)
