"""Moments as the contract writes them."""

from __future__ import annotations

from datetime import datetime, timedelta

from oarlock_trainer.runtime.clock import timestamp


def test_a_moment_of_the_past_is_earlier_by_as_much() -> None:
    now, then = datetime.fromisoformat(timestamp()), datetime.fromisoformat(timestamp(3600.0))
    assert timedelta(minutes=59) < now - then <= timedelta(hours=1)
