"""The next pod of one that was asked to go is made while that one still trains: when, and what becomes of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from gang_worlds import COSCHEDULING
from jobs import job, report, spec
from made_pods import environment
from replacing import KEYED, living
from world_writes import Killed
from worlds import World

from oarlock_api.requests import EvictionReadiness
from oarlock_operator.decide import decide
from oarlock_operator.model.observation import Ending, GangSystems
from oarlock_operator.model.plan import Look, Need

GRACE = timedelta(seconds=300)


def gang(
    *,
    spares: bool = True,
    surges: bool = True,
    systems: GangSystems | None = None,
    recovery: dict[str, Any] | None = None,
    **changes: Any,
) -> World:
    """Four pods that train, with room for more in the cluster."""
    wanted = spec(**{"nodes": 4, "recovery": {"inPlace": "Auto", **(recovery or {})}, **changes})
    world = World(job=job(spec=wanted), spares=spares, surges=surges, systems=systems or GangSystems())
    world.defaults = KEYED
    world.running(step=20)
    return world


def ask(world: World, *ranks: int, grace: timedelta = GRACE, **pod: Any) -> None:
    """Somebody deletes these pods, which have their grace."""
    for rank in ranks:
        asked = replace(world.pod(rank), deleting=True, delete_by=world.now + grace, **pod)
        world.pods[asked.name] = asked


def leave(world: World, rank: int, *, step: int) -> None:
    """The gang has saved, and the first pod of that rank has left."""
    old = world.pods[f"flux-1-{rank}"]
    saved = replace(report(old, code=86, at=world.now), step=step, checkpoint_step=step)
    world.pods[old.name] = replace(old, ready=False, ending=Ending(86, report=saved))


def surging(world: World) -> list[tuple[int, int]]:
    return [(one.rank, one.incarnation) for one in world.job.status.recovery.surging]


def replacing(world: World) -> list[tuple[int, int]]:
    return [(one.rank, one.incarnation) for one in world.job.status.recovery.replacing]


def lives(world: World) -> None:
    """Passes until nothing changes, by operators that follow one that is killed."""
    try:
        world.settle()
    except Killed:
        world.kill_at = None
        world.settle()


def test_it_is_made_at_once_and_the_old_one_is_let_be() -> None:
    world = gang()
    ask(world, 2)
    plan = world.one_pass()
    assert surging(world) == [(2, 2)]
    assert living(world) == ["flux-1-0", "flux-1-1", "flux-1-2-i2", "flux-1-3"]
    told = environment(world.made["flux-1-2-i2"])
    assert (told["OARLOCK_SURGE"], told["OARLOCK_INCARNATION"]) == ("1", "2")
    assert "OARLOCK_FOLLOWS_THE_DEAD" not in told
    assert [event.reason for event in plan.events] == ["SurgePod"]
    status = world.job.status
    assert (status.recovery.stage, status.phase, status.restarts.voluntary) == (None, "Running", 0)
    assert status.recovery.surging[0].hold_until_time == world.now + GRACE / 2


def test_nothing_more_happens_while_the_old_one_trains() -> None:
    world = gang()
    ask(world, 2)
    world.settle()
    world.start_all()
    before = dict(world.pods)
    world.now += timedelta(seconds=60)
    world.settle()
    assert (world.pods, surging(world)) == (before, [(2, 2)])


def test_room_is_looked_for_off_the_old_ones_node() -> None:
    world = gang()
    ask(world, 2)
    need = decide(world.observe())
    assert isinstance(need, Need)
    assert (need.look, need.leaving) == (Look.SPARES, {"node-2"})


@pytest.mark.parametrize(
    ("changes", "rank", "pod"),
    [
        ({"spares": False}, 2, {}),
        ({}, 0, {}),
        ({}, 2, {"disrupted": "PreemptionByScheduler"}),
        ({}, 2, {"grace": timedelta(seconds=6)}),
        ({"recovery": {"inPlace": "Never"}}, 2, {}),
        ({"surges": False}, 2, {}),
        ({"systems": COSCHEDULING, "scheduling": {"gang": "Coscheduling", "schedulerName": "together"}}, 2, {}),
        ({"nodes": 1}, 0, {}),
    ],
    ids=["no room", "rank 0", "preempted", "no time", "not in place", "an older image", "a gang system", "one node"],
)
def test_it_is_not_made_where_it_must_not_or_would_be_of_no_use(changes: Any, rank: int, pod: Any) -> None:
    world = gang(**changes)
    ask(world, rank, **pod)
    world.settle()
    assert surging(world) == []
    assert not any("-i" in name for name in world.made)


def test_once_the_old_one_has_left_it_is_its_next_pod_and_no_other_is_made() -> None:
    world = gang()
    ask(world, 2)
    world.settle()
    world.start_all()
    leave(world, 2, step=40)
    world.settle()
    assert (surging(world), replacing(world), world.job.status.recovery.stage) == ([], [(2, 2)], "Replace")
    assert world.job.status.recovery.replacing[0].ended, "rank 0's agent is told that nothing of the old one runs"
    world.end_round(86, rank=2, why="pod 2 was asked to go", step=40, resumed_step=40, lost_pod=True)
    world.step(41)
    world.settle()
    status = world.job.status
    assert (status.attempt, status.recovery.stage, replacing(world)) == (1, None, [])
    assert living(world) == ["flux-1-0", "flux-1-1", "flux-1-2-i2", "flux-1-3"]
    assert "flux-1-2-i3" not in world.made
    assert (status.restarts.voluntary, status.restarts.application, status.restarts.infrastructure) == (1, 0, 0)
    (one,) = status.rounds
    assert (one.rung, one.rank, one.resumed_from_step, one.lost_steps) == ("ReplacePod", 2, 40, 0)


def test_the_next_round_may_be_told_of_before_the_end_of_the_old_pod_is_seen() -> None:
    world = gang()
    ask(world, 2, disrupted="EvictionByEvictionAPI")
    world.settle()
    world.start_all()
    world.end_round(86, rank=2, why="pod 2 was asked to go", step=40, resumed_step=40, lost_pod=True)
    world.step(41)
    world.settle()
    assert [(one.rung, one.reason) for one in world.job.status.rounds] == [("ReplacePod", "Evicted")]
    assert world.job.status.restarts.voluntary == 0, "that is charged with the loss"
    world.progress = None
    leave(world, 2, step=40)
    world.settle()
    world.step(42)
    world.settle()
    status = world.job.status
    assert (status.attempt, status.recovery.stage, replacing(world), surging(world)) == (1, None, [], [])
    assert (status.restarts.voluntary, len(status.rounds)) == (1, 1)


@pytest.mark.parametrize("how", ["killed", "deleted", "never made"])
def test_one_that_is_lost_before_holds_the_round_no_longer_and_another_is_made_once_the_old_one_has_left(
    how: str,
) -> None:
    world = gang()
    ask(world, 2)
    world.settle()
    if how == "killed":
        world.start_all()
        world.end(2, 137, with_report=False)
    elif how == "deleted":
        ask(world, 2)
    else:
        del world.pods["flux-1-2-i2"]
    world.now += timedelta(seconds=2)
    world.settle()
    assert world.job.status.recovery.stage is None, "nobody trains with it"
    assert all(one.hold_until_time <= world.now for one in world.job.status.recovery.surging)
    leave(world, 2, step=40)
    world.settle()
    world.kubelets()
    world.settle()
    assert world.job.status.attempt == 1
    assert replacing(world) == [(2, 3)]
    assert "flux-1-2-i3" in world.made


def test_another_pod_that_is_lost_meanwhile_is_made_anew_besides() -> None:
    world = gang()
    ask(world, 2)
    world.settle()
    world.start_all()
    world.end(1, 137, with_report=False)
    world.settle()
    assert (world.job.status.attempt, replacing(world), surging(world)) == (1, [(1, 3)], [(2, 2)])
    leave(world, 2, step=30)
    world.settle()
    assert (world.job.status.attempt, replacing(world), surging(world)) == (1, [(1, 3), (2, 2)], [])


def test_two_that_are_asked_at_once_have_theirs_made_together() -> None:
    world = gang()
    ask(world, 2, 3)
    world.settle()
    assert surging(world) == [(2, 2), (3, 3)]


def test_a_gang_that_ends_well_before_takes_it_with_it() -> None:
    world = gang()
    ask(world, 2)
    world.settle()
    world.start_all()
    for rank in range(4):
        name = f"flux-1-{rank}"
        world.pods[name] = replace(
            world.pods[name], ending=Ending(0, report=report(world.pods[name], code=0, at=world.now))
        )
    world.settle()
    assert world.pods.pop("flux-1-2-i2").deleting
    world.settle()
    assert (world.job.status.phase, surging(world)) == ("Succeeded", [])


def test_a_suspended_gang_takes_it_with_it() -> None:
    world = gang()
    ask(world, 2)
    world.settle()
    assert world.job.spec
    world.job = replace(world.job, spec=world.job.spec.model_copy(update={"suspend": True}))
    world.settle()
    world.kubelets()
    world.settle()
    assert not [pod for pod in world.pods.values() if not pod.stopped]
    assert world.job.spec
    world.job = replace(world.job, spec=world.job.spec.model_copy(update={"suspend": False}))
    world.settle()
    assert (world.job.status.attempt, surging(world)) == (2, [])


@pytest.mark.parametrize("kill_at", range(1, 7))
def test_an_operator_that_is_killed_at_any_write_makes_no_pod_twice_and_ends_the_same(kill_at: int) -> None:
    world = gang()
    ask(world, 2)
    world.kill_at = world.writes + kill_at
    lives(world)
    world.start_all()
    leave(world, 2, step=40)
    lives(world)
    world.start_all()
    world.end_round(86, rank=2, why="pod 2 was asked to go", step=40, resumed_step=40, lost_pod=True)
    world.step(41)
    lives(world)
    status = world.job.status
    assert (status.attempt, status.recovery.stage, surging(world), replacing(world)) == (1, None, [], [])
    assert status.restarts.voluntary == 1
    assert len(living(world)) == 4


def test_a_grace_that_is_cut_shortens_the_hold() -> None:
    world = gang()
    ask(world, 2)
    world.settle()
    world.start_all()
    first = world.job.status.recovery.surging[0].hold_until_time
    world.now += timedelta(seconds=10)
    world.settle()
    assert world.job.status.recovery.surging[0].hold_until_time == first, "time alone changes nothing"
    before, old = world.now, world.pods["flux-1-2"]
    world.pods[old.name] = replace(old, delete_by=before + timedelta(seconds=20))
    world.settle()
    world.now += timedelta(seconds=5)
    world.settle()
    held = world.job.status.recovery.surging[0].hold_until_time
    assert before + timedelta(seconds=10) <= held < before + timedelta(seconds=11)


def test_a_save_that_is_known_to_take_long_leaves_less_to_hold() -> None:
    world = gang()
    known = EvictionReadiness(seconds_needed=120.0, grace_seconds=300, by="Drill", measure_time=world.now)
    world.job = replace(world.job, status=world.job.status.model_copy(update={"eviction_readiness": known}))
    ask(world, 2)
    world.one_pass()
    assert world.job.status.recovery.surging[0].hold_until_time == world.now + timedelta(seconds=120)


def test_rounds_that_end_by_a_pod_that_trains_on_are_taken_for_its_loss_once() -> None:
    world = gang()
    ask(world, 2)
    world.settle()
    world.start_all()
    for number in range(3):
        world.end_round(82, rank=2, why="it was lost", step=20 + number, resumed_step=20, lost_pod=True)
        world.step(21 + number)
        world.settle()
    rungs = [one.rung for one in world.job.status.rounds]
    assert rungs.count("ReplacePod") == 1
    assert world.job.status.restarts.infrastructure + world.job.status.restarts.application > 0


def test_an_elastic_gang_that_goes_on_without_it_takes_its_next_pod_for_the_one_that_stands_by() -> None:
    elastic = {"elastic": {"minNodes": 2, "patienceSeconds": 10}}
    training = spec().to_manifest(defaults=False)["training"] | {"effectiveBatch": 12}
    world = gang(**elastic, training=training)
    ask(world, 2)
    world.settle()
    assert surging(world) == [(2, 2)]
    world.step(30)
    assert world.progress
    world.progress = replace(world.progress, members=(0, 1, 3))
    world.settle()
    assert world.job.status.standby == (2,)
    old = world.pods["flux-1-2"]
    world.pods[old.name] = replace(old, ready=False, ending=Ending(137))
    world.now += timedelta(seconds=400)
    world.settle()
    assert (surging(world), replacing(world)) == ([], [(2, 2)])
    world.start_all()
    world.end(2, 137, with_report=False)
    world.now += timedelta(seconds=400)
    world.settle()
    assert replacing(world) == [(2, 3)], "what becomes of it is seen"


def test_one_that_is_asked_before_the_end_of_another_is_seen_does_not_keep_it_from_being_written_down() -> None:
    world = gang()
    ask(world, 2)
    world.settle()
    world.start_all()
    leave(world, 2, step=40)
    ask(world, 3)
    world.settle()
    assert (world.job.status.attempt, replacing(world)) == (1, [(2, 2)])
    leave(world, 3, step=41)
    world.settle()
    assert (world.job.status.attempt, replacing(world)) == (1, [(2, 2), (3, 3)])


def test_a_change_of_the_operator_s_while_a_round_is_held_costs_no_attempt() -> None:
    world = gang()
    ask(world, 2)
    world.settle()
    world.start_all()
    world.defaults = replace(world.defaults, trainer_image="trainer:next")
    leave(world, 2, step=40)
    world.settle()
    assert (world.job.status.attempt, replacing(world)) == (1, [(2, 2)])
