"""That nothing goes on is in the status from half of the time on after which it counts as a hang, until something does."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from worlds import World


def tell(world: World, silent: float | None, *, allowed: float | None = 60.0) -> tuple[int | None, int | None]:
    world.now += timedelta(seconds=11)
    world.step(20)
    assert world.progress is not None
    world.progress = replace(world.progress, silent_seconds=silent, hang_after_seconds=allowed)
    world.one_pass()
    assert world.job.status.progress
    return world.job.status.progress.silent_seconds, world.job.status.progress.hang_after_seconds


def trained() -> World:
    world = World()
    world.running(step=20)
    return world


def test_it_is_told_from_half_of_the_time_on_and_no_longer_once_something_goes_on() -> None:
    world = trained()
    assert tell(world, 29.6) == (None, None)
    assert tell(world, 44.6) == (45, 60)
    assert tell(world, 0.5) == (None, None)
    assert tell(world, None, allowed=None) == (None, None)


def test_it_ends_with_the_round_that_the_hang_ended_and_with_the_attempt() -> None:
    world = trained()
    assert tell(world, 59.0) == (59, 60)
    world.end_round(83, silent_seconds=60.5)
    world.now += timedelta(seconds=1)
    world.step(20)
    world.one_pass()
    assert world.job.status.progress
    assert world.job.status.progress.silent_seconds is None
    assert world.job.status.rounds[-1].silent_seconds == 60.5
    tell(world, 59.0)
    world.progress = None
    world.end(1, 83)
    world.settle()
    assert world.job.status.attempt == 2
    assert world.job.status.progress.silent_seconds is None
