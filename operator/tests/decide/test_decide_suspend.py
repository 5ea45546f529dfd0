"""Suspend and resume: the gang saves, leaves, may be changed, and goes on."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from jobs import job, spec
from worlds import World, condition

from oarlock_operator.decide import decide
from oarlock_operator.model.plan import CreatePods, DeletePods


def suspended(world: World, *, wanted: bool = True, **changes: object) -> World:
    world.job = replace(world.job, spec=spec(suspend=wanted, **changes))
    return world


def test_a_job_that_is_made_suspended_waits_without_pods_and_starts_when_it_may() -> None:
    world = World(job=job(spec=spec(suspend=True)))
    world.settle()
    assert (world.job.status.phase, world.job.status.attempt, world.pods) == ("Suspended", 0, {})
    assert condition(world, "Suspended") == ("True", "Suspended")
    assert world.job.status.start_time is None
    suspended(world, wanted=False)
    world.settle()
    assert (world.job.status.phase, world.job.status.attempt) == ("Starting", 1)
    assert condition(world, "Suspended") == ("False", "NotSuspended")


def test_suspending_writes_the_wish_first_and_gives_the_pods_their_own_grace_to_save() -> None:
    world = World()
    world.running(step=20, saved=10)
    suspended(world)
    plan = decide(world.observe())
    assert plan.status is not None
    assert plan.status.recovery.stage == "Suspending"
    assert [action.grace_seconds for action in plan.actions if isinstance(action, DeletePods)] == [None]


def test_suspended_is_said_only_when_nothing_runs_and_keeps_the_last_checkpoint() -> None:
    world = World()
    world.running(step=20, saved=10)
    suspended(world)
    world.settle()
    assert condition(world, "Suspended") == ("False", "Suspending")
    assert world.job.status.phase == "Running"
    world.end(0, 86)
    ending = world.pods["flux-1-0"].ending
    assert ending is not None
    assert ending.report is not None
    report = replace(ending.report, step=25, checkpoint_step=25)
    world.pods["flux-1-0"] = replace(world.pods["flux-1-0"], ending=replace(ending, report=report))
    world.end(1, 86)
    world.settle()
    status = world.job.status
    assert (status.phase, status.reason) == ("Suspended", "Suspended")
    assert condition(world, "Suspended") == ("True", "Suspended")
    assert status.latest_checkpoint is not None
    assert status.latest_checkpoint.step == 25
    assert status.completion_time is None
    assert status.attempts[0].end_time is not None


def test_pods_that_fail_while_they_are_told_to_leave_are_no_fault() -> None:
    world = suspended_after_running()
    assert (world.job.status.restart_count, world.job.status.last_fault) == (0, None)


def suspended_after_running() -> World:
    world = World()
    world.running(step=20)
    suspended(world)
    world.settle()
    world.end(0, 137, with_report=False)
    world.kubelets()
    world.settle()
    assert world.job.status.phase == "Suspended"
    return world


def test_resuming_raises_the_attempt_without_counting_a_restart_and_takes_the_changed_spec() -> None:
    world = suspended_after_running()
    suspended(world, wanted=False, nodes=3)
    world.settle()
    status = world.job.status
    assert (status.attempt, status.restart_count, status.attempts[-1].reason) == (2, 0, "Resumed")
    assert sorted(world.pods) == ["flux-2-0", "flux-2-1", "flux-2-2"]
    assert status.phase == "Starting"


def test_what_was_left_to_us_is_resolved_anew_on_resume() -> None:
    world = suspended_after_running()
    changed = spec(suspend=False, pod={"image": "new:1"})
    world.job = replace(world.job, spec=changed)
    world.settle()
    assert world.job.status.resolved is not None
    assert world.job.status.resolved.image == "new:1"


def test_a_wish_taken_back_while_pods_still_save_is_fulfilled_after_they_left() -> None:
    world = World()
    world.running()
    suspended(world)
    world.one_pass()
    suspended(world, wanted=False)
    plan = decide(world.observe())
    assert not any(isinstance(action, CreatePods) for action in plan.actions)
    world.kubelets()
    world.settle()
    assert sorted(world.pods) == ["flux-2-0", "flux-2-1"]


def test_a_suspended_gang_whose_nodes_were_lowered_has_not_succeeded() -> None:
    world = World()
    world.running()
    suspended(world)
    world.settle()
    world.end(0, 0)
    world.end(1, 86)
    world.settle()
    suspended(world, nodes=1)
    world.settle()
    assert world.job.status.phase == "Suspended"


def test_ranks_that_are_done_when_they_should_save_have_succeeded() -> None:
    world = World()
    world.running()
    suspended(world)
    world.settle()
    for rank in (0, 1):
        world.end(rank, 0)
    world.settle()
    assert world.job.status.phase == "Succeeded"


def test_time_in_suspension_does_not_count_towards_the_deadline() -> None:
    world = World(job=job(spec=spec(activeDeadlineSeconds=1000)))
    world.running()
    suspended(world, activeDeadlineSeconds=1000)
    world.settle()
    world.kubelets()
    world.settle()
    assert world.job.status.phase == "Suspended"
    world.now += timedelta(hours=5)
    suspended(world, wanted=False, activeDeadlineSeconds=1000)
    world.settle()
    assert world.job.status.inactive_seconds == pytest.approx(5 * 3600, abs=2)
    world.running()
    assert world.job.status.phase == "Running"
    world.now += timedelta(seconds=1000)
    world.one_pass()
    assert world.job.status.reason == "DeadlineExceeded"


def test_suspension_during_a_recovery_ends_it_and_resume_goes_on() -> None:
    world = World()
    world.running()
    world.end(1, 1)
    world.one_pass()
    assert world.job.status.attempt == 2
    suspended(world)
    world.settle()
    world.kubelets()
    world.settle()
    assert world.job.status.phase == "Suspended"
    suspended(world, wanted=False)
    world.settle()
    assert sorted(world.pods) == ["flux-3-0", "flux-3-1"]


def test_a_job_that_is_wanted_again_while_it_stops_needs_no_event_to_go_on() -> None:
    world = World()
    world.running()
    world.job = replace(world.job, spec=spec(suspend=True))
    world.one_pass()
    world.job = replace(world.job, spec=spec())
    world.pods = {}
    plan = world.one_pass()
    assert world.job.status.recovery.stage == "Suspended"
    assert plan.again_seconds == 0
