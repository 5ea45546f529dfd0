"""When all pods are made anew instead of the lost one alone, and when that one was waited for in vain."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from jobs import job, spec
from made_pods import environment
from replacing import KEYED, NODES, cut_off, gang, go_on, kill, living, lost_before, missed, states
from worlds import World

from oarlock_api.contract.figures import Figures
from oarlock_api.contract.rounds import LostPod
from oarlock_operator.model.observation import Defaults, Ending
from oarlock_operator.model.plan import DeletePods


@pytest.mark.parametrize(
    "code",
    [1, 81, 82, 84, 86, 87],
    ids=["program", "restart", "victim", "storage", "request", "preflight"],
)
def test_what_a_new_pod_would_not_mend_is_a_new_attempt(code: int) -> None:
    world = gang()
    world.end(2, code)
    world.ended_seconds = 2.0
    world.one_pass()
    assert states(world)[:2] in [(2, "Drain"), (2, "Schedule")]


def test_a_new_pod_that_is_not_up_yet_gets_a_faults_grace_where_the_others_get_the_time_to_save() -> None:
    world = gang()
    kill(world, 2)
    world.one_pass()
    new = world.pod(2)
    world.pods[new.name] = replace(new, node="node-2", scheduled=True, started=True)
    world.end(1, 86)
    plans = [world.one_pass() for _ in range(3)]
    told = [act for plan in plans for act in plan.actions if isinstance(act, DeletePods)]
    graces = {name: act.grace_seconds for act in told for name, _ in act.pods}
    assert graces == {"flux-1-0": None, new.name: 5, "flux-1-3": None}


@pytest.mark.parametrize("code", [85, 88])
def test_what_no_start_mends_ends_the_job(code: int) -> None:
    world = gang()
    world.end(2, code)
    world.one_pass()
    assert (world.job.status.attempt, world.job.status.recovery.stage) == (1, "Stopping")


def deleted_by_hand(world: World) -> None:
    world.pods["flux-1-0"] = replace(world.pods["flux-1-0"], deleting=True, delete_by=world.now + timedelta(60))


def all_lost(world: World) -> None:
    for rank in range(NODES):
        kill(world, rank)


def settings_changed(world: World) -> None:
    raw = world.job.spec.to_manifest() if world.job.spec else {}
    world.job = replace(world.job, spec=spec(**{**raw, "recovery": {"inPlace": "Auto", "hangSeconds": 99}}))


def operator_changed(world: World) -> None:
    world.pods["flux-1-3"] = replace(world.pods["flux-1-3"], made_from="another release's")


def preempted(world: World) -> None:
    world.pods["flux-1-2"] = replace(world.pods["flux-1-2"], disrupted="PreemptionByScheduler")


def out_of_memory(world: World) -> None:
    world.pods["flux-1-2"] = replace(world.pods["flux-1-2"], ending=Ending(137, reason="OOMKilled"))


@pytest.mark.parametrize(
    "what",
    [deleted_by_hand, all_lost, settings_changed, operator_changed, lost_before, preempted, out_of_memory],
    ids=lambda f: f.__name__,
)
def test_any_doubt_is_a_new_attempt(what: Any) -> None:
    world = gang()
    kill(world, 2)
    what(world)
    world.one_pass()
    assert states(world)[0] == 2


def test_more_than_eight_at_once_are_a_new_attempt() -> None:
    world = gang(nodes=12)
    for rank in range(1, 10):
        kill(world, rank)
    world.one_pass()
    assert states(world)[0] == 2


@pytest.mark.parametrize(
    ("recovery", "defaults"),
    [({}, KEYED), ({"inPlace": "Never"}, KEYED), ({"inPlace": "Auto"}, replace(KEYED, keys=()))],
    ids=["default", "Never", "without a key"],
)
def test_by_default_and_without_a_key_nothing_is_replaced_and_no_pod_is_told_of_it(
    recovery: dict[str, object], defaults: Defaults
) -> None:
    world = World(job=job(spec=spec(nodes=NODES, recovery=recovery)), defaults=defaults)
    world.running(step=20)
    kill(world, 2)
    world.one_pass()
    assert states(world)[0] == 2
    manifest = world.made["flux-1-1"]
    assert "oarlock.dev/made-from" not in manifest["metadata"]["annotations"]
    assert "OARLOCK_REPLACES_PODS" not in environment(manifest)


def test_who_waited_in_vain_and_left_is_a_new_attempt_at_no_further_cost() -> None:
    world = gang()
    kill(world, 2)
    world.one_pass()
    counts = world.job.status.restarts
    for rank in (0, 1, 3):
        world.end(rank, 82)
    world.ended_seconds = 2.0
    world.settle()
    world.kubelets()
    world.settle()
    assert states(world)[:2] == (2, "Schedule")
    assert (world.job.status.restarts, world.job.status.restart_count) == (counts, 1)


def test_a_standby_that_nobody_ends_is_ended_by_the_operator_at_no_further_cost() -> None:
    world = gang(standbySeconds=30)
    kill(world, 2)
    world.one_pass()
    counts = world.job.status.restarts
    first = world.pod(0).uid
    world.silent[first] = 60.0
    world.now += timedelta(seconds=90)
    world.one_pass()
    assert states(world)[:2] == (1, "Replace")
    world.now += timedelta(seconds=1)
    world.silent[first] = 59.0
    world.one_pass()
    assert states(world)[:2] == (1, "Replace"), "an operator that has just started has not heard of a round yet"
    world.silent[first] = 60.0
    world.one_pass()
    assert states(world)[:2] == (2, "Drain")
    assert (world.job.status.restarts, world.job.status.restart_count) == (counts, 1)
    assert world.job.status.attempts[-1].reason == "ProcessKilled"
    assert "standbySeconds (30)" in (world.job.status.message or "")


def round_begins(world: World) -> None:
    """The gang is whole again: its ranks start, and have made no step yet."""
    world.start_all()
    world.end_round(82, rank=2, why="it was lost", step=20, resumed_step=None, lost_pod=True)
    world.step(0)
    assert world.progress is not None
    world.progress = replace(world.progress, phase="Starting", figures=Figures(), resumed_from_step=None)


def beginning_again() -> World:
    """A gang that has lost pod 2, and is whole again; others would stand by for 30 s."""
    world = gang(standbySeconds=30)
    kill(world, 2)
    world.one_pass()
    round_begins(world)
    return world


def test_a_gang_that_is_whole_again_may_load_and_compile_for_longer_than_others_stand_by() -> None:
    world = beginning_again()
    world.one_pass()
    world.now += timedelta(seconds=600)
    world.one_pass()
    assert states(world) == (1, "Replace", [(2, 2)])
    world.progress = None
    world.one_pass()
    assert states(world) == (1, "Replace", [(2, 2)]), "the next operator has not asked yet"
    world.step(16)
    world.one_pass()
    assert states(world) == (1, None, [])


def test_a_second_loss_while_a_gang_loads_for_long_costs_its_own_pod_alone() -> None:
    world = beginning_again()
    world.one_pass()
    world.now += timedelta(seconds=600)
    missed(world, 3, code=80, ago=1)
    world.one_pass()
    assert states(world) == (1, "Replace", [(2, 2)]), "it may still say how it ends"
    missed(world, 3, code=80, ago=30)
    world.one_pass()
    assert states(world) == (1, "Replace", [(2, 2), (3, 3)])


def test_a_gang_that_still_waits_for_another_pod_has_not_begun_a_round() -> None:
    world = beginning_again()
    assert world.progress is not None
    world.progress = replace(world.progress, lost=(LostPod(rank=2, incarnation=1, code=82, why="silent"),))
    world.now += timedelta(seconds=91)
    world.one_pass()
    assert states(world)[:2] == (2, "Drain")


def test_a_trainer_that_tells_of_no_step_trains_once_its_round_began() -> None:
    own = {"training": None, "custom": {"command": ["python3", "train.py"]}, "pod": {"image": "mine"}}
    world = gang(changes=own)
    kill(world, 2)
    world.one_pass()
    round_begins(world)
    world.one_pass()
    assert states(world) == (1, None, [])


def test_an_old_pod_that_does_not_stop_is_not_waited_for_to_the_end() -> None:
    world = gang()
    cut_off(world, 1, unreachable=False)
    world.one_pass()
    world.now += timedelta(seconds=37)
    world.settle()
    assert states(world)[0] == 2


@pytest.mark.parametrize("change", [{"inPlace": "Never"}, {"inPlace": "Auto", "hangSeconds": 99}])
def test_a_change_meanwhile_that_new_pods_would_differ_by_is_a_new_attempt(change: dict[str, object]) -> None:
    world = gang()
    cut_off(world, 1, unreachable=False)
    world.one_pass()
    raw = world.job.spec.to_manifest() if world.job.spec else {}
    world.job = replace(world.job, spec=spec(**{**raw, "recovery": change}))
    world.kubelets()
    world.pods.pop("flux-1-1")
    world.one_pass()
    assert states(world)[0] == 2


def test_a_suspension_meanwhile_stops_the_new_pod_too() -> None:
    world = gang()
    kill(world, 2)
    world.one_pass()
    raw = world.job.spec.to_manifest() if world.job.spec else {}
    world.job = replace(world.job, spec=spec(**{**raw, "suspend": True}))
    world.settle()
    world.kubelets()
    world.settle()
    assert (world.job.status.phase, states(world)[2]) == ("Suspended", [])
    assert not living(world)


def test_the_end_of_a_job_waits_for_a_pod_whose_place_was_taken() -> None:
    world = gang()
    cut_off(world, 1, unreachable=True)
    world.one_pass()
    go_on(world, 1)
    for rank in range(NODES):
        world.end(rank, 0)
    world.one_pass()
    assert world.job.status.completion_time is None
    del world.pods["flux-1-1"]
    world.settle()
    assert world.job.status.phase == "Succeeded"
