"""After how many steps the state goes into memory."""

from __future__ import annotations

import pytest

from oarlock_trainer.checkpoint.memory.rhythm import Rhythm, every_steps


def train(
    rhythm: Rhythm, *, steps: int, step: float, stall: float, slower: float, beside: int
) -> tuple[list[int], float]:
    """Steps at which snapshots began, and the seconds that all took, where each snapshot lies beside so many steps."""
    begun: list[int] = []
    total, left, stalled = 0.0, 0, 0.0
    for done in range(1, steps + 1):
        due = rhythm.is_due(done) and left <= 1
        seconds = step + (slower if left else 0.0) + stalled
        stalled = 0.0
        total += seconds
        rhythm.stepped(seconds, beside=left > 0)
        if left == 1:
            rhythm.ended(stall=stall, seconds=beside * (step + slower))
        left = max(left - 1, 0)
        if due:
            begun.append(done)
            rhythm.began(done)
            left, stalled = beside, stall
    return begun, total


def test_a_number_of_the_job_s_own_holds() -> None:
    rhythm = Rhythm(3)
    assert [step for step in range(1, 10) if rhythm.is_due(step)] == [3, 6, 9]


@pytest.mark.parametrize(("stall", "slower", "beside"), [(0.0, 0.0, 4), (0.02, 0.0, 1), (0.0, 0.3, 3), (0.5, 0.1, 12)])
def test_on_auto_snapshots_cost_no_more_than_a_hundredth_of_the_time(stall: float, slower: float, beside: int) -> None:
    steps = 20_000
    begun, total = train(Rhythm(None), steps=steps, step=1.0, stall=stall, slower=slower, beside=beside)
    assert len(begun) > 50
    assert total <= 1.0101 * steps


def test_what_costs_nothing_is_taken_as_often_as_it_is_done_half_of_the_time_again() -> None:
    begun, _ = train(Rhythm(None), steps=100, step=1.0, stall=0.0, slower=0.0, beside=4)
    assert set(map(int.__sub__, begun[2:], begun[1:])) == {6}


def test_the_first_is_taken_once_it_is_known_what_a_step_takes() -> None:
    rhythm = Rhythm(None)
    assert not rhythm.is_due(1)
    for _ in range(5):
        rhythm.stepped(1.0, beside=False)
    assert rhythm.is_due(6)
    rhythm.began(6)
    assert not rhythm.is_due(7)


def test_steps_that_take_no_time_divide_by_nothing() -> None:
    assert every_steps(cost=1.0, seconds=1.0, step_seconds=0.0) == 1
