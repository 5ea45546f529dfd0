"""A pod that was asked to go is made anew by itself, as one that is lost, once the gang has saved and it has left."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from jobs import job, report, spec
from made_pods import environment
from replacing import KEYED, gang, states
from worlds import World

from oarlock_operator.decide.budgets import MOST_EVICTIONS
from oarlock_operator.model.observation import Ending


def leave(world: World, rank: int, *, step: int, **pod: Any) -> None:
    """The gang has saved at this step, and that pod of it, which was asked to go, has left."""
    before = world.pod(rank)
    saved = replace(report(before, code=86, at=world.now), step=step, checkpoint_step=step)
    left = {"deleting": True, "ready": False, "ending": Ending(86, report=saved), **pod}
    world.pods[before.name] = replace(before, **left)


def go_on(world: World, rank: int, *, step: int) -> None:
    """The next pod starts, and the gang trains again from this step on."""
    world.start_all()
    world.end_round(86, rank=rank, why=f"pod {rank} was asked to go", step=step, resumed_step=step, lost_pod=True)
    world.step(step + 1)
    world.one_pass()


@pytest.mark.parametrize(
    ("taken", "reason"),
    [
        ({}, "LeftOnRequest"),
        ({"gone": True}, "LeftOnRequest"),
        ({"disrupted": "EvictionByEvictionAPI"}, "Evicted"),
        ({"disrupted": "DeletionByTaintManager"}, "Evicted"),
        ({"deleting": False, "disrupted": "TerminationByKubelet"}, "Evicted"),
    ],
    ids=["deleted", "deleted and gone", "evicted", "for a taint", "its node shuts down"],
)
@pytest.mark.parametrize("rank", [0, 2])
def test_the_next_pod_of_its_rank_alone_is_made_and_nobody_is_charged(
    taken: dict[str, Any], reason: str, rank: int
) -> None:
    world = gang()
    leave(world, rank, step=40, **taken)
    world.one_pass()
    assert states(world) == (1, "Replace", [(rank, 2)])
    counts = world.job.status.restarts
    assert (counts.application, counts.infrastructure, counts.voluntary, counts.evictions) == (0, 0, 1, 0)
    assert world.job.status.recovery.replacing[0].reason == reason
    assert environment(world.made[f"flux-1-{rank}-i2"])["OARLOCK_FOLLOWS_THE_DEAD"] == "1"


def test_the_round_that_ended_for_it_is_booked_with_what_was_saved_and_not_charged_again() -> None:
    world = gang()
    leave(world, 2, step=40)
    world.one_pass()
    go_on(world, 2, step=40)
    (one,) = world.job.status.rounds
    assert (one.rung, one.reason, one.rank, one.exit_code) == ("ReplacePod", "LeftOnRequest", 2, 86)
    assert (one.resumed_from_step, one.lost_steps) == (40, 0)
    assert world.job.status.restarts.voluntary == 1
    assert states(world) == (1, None, [])


def test_one_that_is_killed_before_it_has_saved_is_made_anew_alone_too() -> None:
    world = gang()
    world.end(2, 137, with_report=False)
    world.pods["flux-1-2"] = replace(world.pods["flux-1-2"], deleting=True)
    world.one_pass()
    assert states(world) == (1, "Replace", [(2, 2)])


def test_a_gang_waits_for_a_pod_that_still_saves() -> None:
    world = gang()
    later = world.now.replace(year=2099)
    world.pods["flux-1-2"] = replace(world.pods["flux-1-2"], deleting=True, delete_by=later)
    world.one_pass()
    assert states(world) == (1, None, [])


@pytest.mark.parametrize("who", ["PreemptionByScheduler", "WorkloadEvictedDueToPreempted", "Evicted"])
def test_a_pod_that_was_taken_for_others_takes_the_gang_with_it(who: str) -> None:
    world = gang()
    leave(world, 2, step=40, disrupted=who)
    world.one_pass()
    assert world.job.status.attempt == 2


def test_several_that_are_asked_to_go_at_once_are_made_anew_together() -> None:
    world = gang()
    leave(world, 2, step=40)
    world.pods["flux-1-3"] = replace(world.pods["flux-1-3"], deleting=True, delete_by=world.now.replace(year=2099))
    world.one_pass()
    assert states(world) == (1, None, []), "the other one is about to have left as well"
    leave(world, 3, step=40)
    world.one_pass()
    assert states(world) == (1, "Replace", [(2, 2), (3, 3)])


def test_one_that_does_not_go_in_time_takes_the_gang_with_it() -> None:
    world = gang()
    leave(world, 2, step=40)
    world.pods["flux-1-3"] = replace(world.pods["flux-1-3"], deleting=True, delete_by=world.now.replace(year=2001))
    world.one_pass()
    assert world.job.status.attempt == 2


def test_one_that_is_asked_while_it_stands_by_for_another_is_made_anew_as_well() -> None:
    world = gang()
    world.end(1, 137, with_report=False)
    world.one_pass()
    assert states(world) == (1, "Replace", [(1, 2)])
    leave(world, 2, step=20)
    world.one_pass()
    assert states(world) == (1, "Replace", [(1, 2), (2, 3)])
    world.start_all()
    world.end_round(82, rank=1, why="it was lost", step=20, resumed_step=15, lost_pod=True)
    world.step(16)
    world.settle()
    assert states(world) == (1, None, [])


def test_a_gang_that_is_taken_whole_is_a_new_attempt() -> None:
    world = gang()
    for rank in range(4):
        leave(world, rank, step=40)
    world.one_pass()
    assert world.job.status.attempt == 2


@pytest.mark.parametrize("code", [1, 82, 83])
def test_one_that_broke_as_it_left_is_made_anew_alone(code: int) -> None:
    world = gang()
    world.end(2, code)
    world.pods["flux-1-2"] = replace(world.pods["flux-1-2"], deleting=True)
    world.one_pass()
    assert states(world) == (1, "Replace", [(2, 2)])


@pytest.mark.parametrize("code", [84, 85, 88])
def test_what_another_pod_would_only_repeat_is_so_of_one_that_was_asked_to_go(code: int) -> None:
    world = gang()
    world.end(2, code)
    world.pods["flux-1-2"] = replace(world.pods["flux-1-2"], deleting=True)
    world.one_pass()
    assert world.job.status.recovery.stage != "Replace"


def test_one_that_was_killed_while_it_waited_for_the_others_to_save_has_left() -> None:
    world = gang()
    leave(world, 2, step=40)
    said = world.pods["flux-1-2"].report
    world.pods["flux-1-2"] = replace(world.pods["flux-1-2"], ending=Ending(137, report=said))
    world.one_pass()
    assert states(world) == (1, "Replace", [(2, 2)])
    assert world.job.status.restarts.voluntary == 1


def test_with_a_command_of_the_jobs_own_all_pods_are_made_anew() -> None:
    custom = {"command": ["train"]}
    world = World(
        job=job(spec=spec(nodes=4, training=None, custom=custom, pod={"image": "mine"}, recovery={"inPlace": "Auto"}))
    )
    world.defaults = KEYED
    world.running(step=20)
    leave(world, 2, step=40)
    world.one_pass()
    assert world.job.status.attempt == 2
    assert world.job.status.attempts[0].not_in_place == (
        "where a pod is asked to go, a job's own command ends in all of them"
    )


def test_a_program_that_ends_with_the_code_of_a_request_though_nobody_asked_is_a_program_that_ends() -> None:
    world = gang()
    leave(world, 2, step=40, deleting=False)
    world.one_pass()
    assert world.job.status.attempt == 2


def test_pods_that_are_taken_again_and_again_without_a_newer_checkpoint_end_the_job() -> None:
    world, losses = gang(), 0
    while world.job.status.phase not in ("Failed", "Stopping") and losses < 2 * MOST_EVICTIONS:
        losses += 1
        leave(world, 2, step=15)
        world.one_pass()
        if world.job.status.recovery.stage != "Replace":
            break
        go_on(world, 2, step=15)
    # The first one's save was progress, and one more is too many.
    assert (losses, world.job.status.reason) == (MOST_EVICTIONS + 2, "NoProgress")
