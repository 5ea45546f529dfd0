"""Rank 0's own pod is made anew: its name, its Service, and the rounds of the next leader."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from replacing import NODES, cut_off, ended_by_a_rank, gang, go_on, kill, states
from worlds import World

from oarlock_operator.model.plan import SelectAttempt


def test_where_the_service_names_all_pods_it_is_narrowed_only_for_a_rank_0_that_may_still_run() -> None:
    def chosen(world: World) -> list[dict[str, str]]:
        return [action.selector for action in world.one_pass().actions if isinstance(action, SelectAttempt)]

    dead = gang(memory={"everySteps": "Auto"})
    kill(dead, 0)
    assert chosen(dead) == []
    cut = gang(memory={"everySteps": "Auto"})
    cut_off(cut, 0, unreachable=True)
    (narrow,) = chosen(cut)
    assert narrow["oarlock.dev/incarnation"] == "2"
    cut.start_all()
    cut.step(16, resumed=15)
    assert cut.progress is not None
    cut.progress = replace(cut.progress, round=2)
    assert chosen(cut) == []
    assert states(cut) == (1, None, [])
    assert chosen(cut) == [], "it may still run"
    cut.pods.pop("flux-1-0")
    (wide,) = chosen(cut)
    assert "oarlock.dev/rank" not in wide
    assert chosen(cut) == []


def test_a_new_rank_0_is_the_one_that_the_service_names_and_its_first_step_books_the_round() -> None:
    world = gang()
    world.step(20, saved=15)
    world.now += timedelta(seconds=11)
    world.one_pass()
    world.progress = None
    kill(world, 0)
    plan = world.one_pass()
    (chosen,) = [action.selector for action in plan.actions if isinstance(action, SelectAttempt)]
    assert chosen["oarlock.dev/incarnation"] == "2"
    world.start_all()
    world.step(16, resumed=15)
    assert world.progress is not None
    world.progress = replace(world.progress, round=2)
    world.one_pass()
    assert states(world) == (1, None, [])
    (one,) = world.job.status.rounds
    assert (one.rung, one.round, one.rank, one.resumed_from_step, one.lost_steps) == ("ReplacePod", 1, 0, 15, 5)
    assert world.job.status.restarts.application == 1
    world.ended[1] = [replace(one, number=2) for one in ended_by_a_rank(world)]
    world.step(16)
    assert world.progress is not None
    world.progress = replace(world.progress, round=3)
    world.one_pass()
    assert [(one.round, one.rung) for one in world.job.status.rounds] == [(1, "ReplacePod"), (2, "RestartRanks")]
    assert world.job.status.restarts.application == 2, "no round is charged that nobody heard of"


@pytest.mark.parametrize("told", [3.5, None])
def test_a_gang_is_down_since_the_loss_of_rank_0_and_not_since_the_new_one_s_start(told: float | None) -> None:
    world = gang()
    kill(world, 0)
    world.one_pass()
    wasted = world.job.status.wasted_gpu_seconds
    world.start_all()
    world.now += timedelta(seconds=90)
    if told:
        world.end_round(82, rank=0, step=20, resumed_step=20, lost_pod=True, down_seconds=told)
    world.step(21, resumed=20)
    assert world.progress is not None
    world.progress = replace(world.progress, round=2, first_step_at=world.now.isoformat())
    world.one_pass()
    (one,) = world.job.status.rounds
    assert (one.rung, one.rank, one.down_seconds) == ("ReplacePod", 0, 90.0)
    assert world.job.status.wasted_gpu_seconds == wasted + 90 * NODES * 2
    assert states(world) == (1, None, [])


def test_a_pod_whose_place_is_taken_is_told_to_go_however_late_it_is_seen() -> None:
    world = gang()
    old = world.pods["flux-1-1"]
    cut_off(world, 1, unreachable=True)
    world.one_pass()
    go_on(world, 1)
    world.pods["flux-1-1"] = old
    world.nodes.clear()
    world.one_pass()
    assert world.pods["flux-1-1"].deleting
    assert states(world) == (1, None, [])


def test_a_pod_that_is_lost_in_the_first_round_of_a_new_rank_0_is_waited_for_until_the_next() -> None:
    world = gang(standbySeconds=30)

    def tells(number: int) -> None:
        world.step(16, resumed=15)
        assert world.progress is not None
        world.progress = replace(world.progress, round=number)

    kill(world, 0)
    world.one_pass()
    world.start_all()
    world.now += timedelta(seconds=5)
    tells(2)
    cut_off(world, 2, unreachable=True)
    world.one_pass()
    assert states(world) == (1, "Replace", [(0, 2), (2, 3)])
    world.start_all()
    world.one_pass()
    assert states(world) == (1, "Replace", [(0, 2), (2, 3)]), "it only imports yet"
    tells(3)
    world.one_pass()
    assert states(world) == (1, None, [])
