"""Restarts are bounded: budgets, what renews them, and the waits between two."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from jobs import job, spec
from worlds import World

from oarlock_operator.model.plan import CreatePods


@pytest.mark.parametrize(
    ("code", "field", "reason"),
    [
        (1, "maxApplicationRestarts", "ApplicationRestartsExhausted"),
        (137, "maxApplicationRestarts", "ApplicationRestartsExhausted"),
        (81, "maxInfrastructureRestarts", "InfrastructureRestartsExhausted"),
    ],
)
def test_a_budget_bounds_restarts_and_is_charged_per_attempt(code: int, field: str, reason: str) -> None:
    world = World(job=job(spec=spec(recovery={field: 2})))
    for _ in range(3):
        assert world.job.status.completion_time is None
        world.crash(code)
    status = world.job.status
    assert (status.phase, status.reason, status.attempt) == ("Failed", reason, 3)
    assert field in (status.message or "")


def test_a_newer_checkpoint_renews_the_budget() -> None:
    world = World(job=job(spec=spec(recovery={"maxApplicationRestarts": 1})))
    for attempt in range(1, 5):
        world.running(step=attempt * 20, resumed=(attempt - 1) * 10, saved=attempt * 10)
        world.end(0, 1)
        world.settle()
        world.kubelets()
        world.settle()
    assert world.job.status.attempt == 5


def test_the_first_restart_is_free_of_backoff_and_the_next_ones_wait_longer() -> None:
    world = World()
    waits = []
    for _ in range(3):
        world.running()
        world.end(0, 1)
        world.one_pass()
        not_before = world.job.status.recovery.not_before_time
        waits.append((not_before - world.now).total_seconds() if not_before else 0.0)
        world.kubelets()
        world.now += timedelta(seconds=60)
    assert waits[0] == 0.0
    assert 5 <= waits[1] <= 10
    assert 10 <= waits[2] <= 20


def test_nothing_is_created_before_the_backoff_is_over() -> None:
    world = World()
    world.crash()
    world.running()
    world.end(0, 1)
    world.one_pass()
    world.kubelets()
    plan = world.one_pass()
    assert not any(isinstance(action, CreatePods) for action in plan.actions)
    assert plan.again_seconds is not None


def test_a_checkpoint_that_only_the_last_report_tells_of_is_progress_too() -> None:
    world = World(job=job(spec=spec(recovery={"maxApplicationRestarts": 1})))
    for attempt in range(1, 4):
        world.running(step=1, resumed=attempt * 10)
        world.end(0, 1)
        name = f"flux-{attempt}-0"
        ending = world.pods[name].ending
        assert ending is not None
        assert ending.report is not None
        said = replace(ending.report, checkpoint_step=attempt * 10 + 5)
        world.pods[name] = replace(world.pods[name], ending=replace(ending, report=said))
        world.settle()
        world.kubelets()
        world.settle()
    assert world.job.status.attempt == 4
