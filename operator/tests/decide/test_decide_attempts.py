"""status.attempts tells of each attempt why it began and why it ended."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from jobs import job, spec
from world_writes import Killed
from worlds import World

from oarlock_operator.model.observed_nodes import Node


def whys(world: World) -> list[tuple[str | None, str | None]]:
    return [(one.reason, one.end_reason) for one in world.job.status.attempts]


def test_a_run_with_a_crash_and_a_suspension_tells_for_each_attempt_why_it_began_and_ended() -> None:
    world = World()
    world.running()
    assert whys(world) == [(None, None)], "it goes on"
    world.crash()
    world.running()
    world.job = replace(world.job, spec=spec(suspend=True))
    world.settle()
    world.kubelets()
    world.settle()
    world.job = replace(world.job, spec=spec())
    world.running()
    for rank in (0, 1):
        world.end(rank, 0)
    world.settle()
    assert whys(world) == [
        (None, "ApplicationError"),
        ("ApplicationError", "Suspended"),
        ("Resumed", "AllRanksSucceeded"),
    ]


@pytest.mark.parametrize(("code", "why"), [(85, "ConfigurationError"), (1, "ApplicationRestartsExhausted")])
def test_the_last_attempt_of_a_job_that_fails_ended_for_the_jobs_own_reason(code: int, why: str) -> None:
    world = World(job=job(spec=spec(recovery={"maxApplicationRestarts": 0})))
    world.running()
    world.end(1, code)
    world.settle()
    world.kubelets()
    world.settle()
    assert (world.job.status.phase, world.job.status.reason) == ("Failed", why)
    assert whys(world) == [(None, why)]


def test_a_cause_that_is_known_only_later_is_told_of_both_attempts() -> None:
    world = World()
    world.running()
    world.end(0, 82)
    world.now += timedelta(seconds=2)
    world.one_pass()
    world.now += timedelta(seconds=2)
    world.one_pass()
    assert whys(world) == [(None, "PeerLost"), ("PeerLost", None)]
    world.nodes["node-1"] = Node(name="node-1", ready=False, unreachable=True)
    world.settle()
    assert whys(world) == [(None, "NodeLost"), ("NodeLost", None)]


def test_an_operator_that_dies_after_any_write_tells_the_same() -> None:
    for kill in range(1, 9):
        world = World()
        world.running()
        world.end(1, 1)
        world.kill_at = world.writes + kill
        for _ in range(3):
            try:
                world.settle()
            except Killed:
                world.kill_at = None
            world.kubelets()
        assert whys(world) == [(None, "ApplicationError"), ("ApplicationError", None)], kill
