"""When a checkpoint is due."""

from __future__ import annotations

import pytest

from oarlock_api.checkpoint import Checkpoint
from oarlock_trainer.checkpoint.interval import Interval, automatic


def test_steps() -> None:
    interval = Interval(Checkpoint(interval_steps=10), now=0.0)
    assert [step for step in range(1, 31) if interval.is_due(step, 1e9)] == [10, 20, 30]


def test_seconds_count_from_the_beginning_of_the_last_save() -> None:
    interval = Interval(Checkpoint(interval_seconds=100), now=0.0)
    assert not interval.is_due(1, 99.0)
    assert interval.is_due(2, 100.0)
    interval.began(130.0)
    interval.saved(stall=5.0, seconds=50.0)
    assert not interval.is_due(3, 229.0)
    assert interval.is_due(4, 230.0)


def test_the_storage_rests_half_as_long_as_a_save_takes() -> None:
    interval = Interval(Checkpoint(), now=0.0)
    interval.saved(stall=0.0, seconds=400.0)
    assert not interval.is_due(1, 599.0)
    assert interval.is_due(1, 600.0)


@pytest.mark.parametrize(("stall", "seconds"), [(0.0, 60.0), (0.4, 263.0), (2.0, 588.0), (120.0, 1800.0)])
def test_without_a_setting_the_cost_of_a_save_decides(stall: float, seconds: float) -> None:
    assert automatic(stall) == pytest.approx(seconds, abs=1.0)
