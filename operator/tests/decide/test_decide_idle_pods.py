"""Pods that the round does not need are lost: they are made anew, and it costs nothing."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from jobs import job, spec
from members import book, charges, gang, start, tells
from replacing import KEYED, cut_off, states
from worlds import World

from oarlock_operator.model.observation import Ending


@pytest.mark.parametrize("how", ["ends", "is gone", "loses its node", "is missed by the leader"])
def test_a_lost_spare_is_made_anew_without_a_stage_or_a_charge(how: str) -> None:
    world = gang(spares=1)
    tells(world, round_=1, step=20)
    if how == "ends":
        world.end(2, 80)
    elif how == "is gone":
        del world.pods["flux-1-2"]
    elif how == "loses its node":
        cut_off(world, 2)
    else:
        tells(world, round_=1, step=20, lost=(2,))
    world.one_pass()
    assert states(world) == (1, None, [(2, 2)])
    assert (world.job.status.phase, charges(world)) == ("Running", (0, 0, 0))
    world.settle()
    assert ("flux-1-2-i2" in world.pods) is (how != "is missed by the leader"), "of no rank two may live"
    if how == "is missed by the leader":
        world.pods["flux-1-2"] = replace(world.pods["flux-1-2"], gone=True)
        world.settle()
    start(world, 2)
    tells(world, round_=1, step=21)
    world.settle()
    assert states(world) == (1, None, [])


def test_a_spare_that_breaks_at_its_start_again_and_again_is_made_ever_more_seldom() -> None:
    world = gang(spares=1, backoffSeconds=100)
    tells(world, round_=1, step=20)
    made = []
    for _ in range(4):
        pod = world.pod(2)
        world.pods[pod.name] = replace(pod, started=True, placed_at=world.now, node="node-2", ending=Ending(1))
        waited = 0
        while world.pod(2).incarnation == pod.incarnation:
            world.now += timedelta(seconds=10)
            waited += 10
            world.one_pass()
            assert waited < 1000
        made.append(waited)
    assert made == sorted(made)
    assert made[-1] >= 2 * 100 * 0.5
    assert charges(world) == (0, 0, 0)


@pytest.mark.parametrize("placed", [True, False])
def test_a_spare_that_somebody_deletes_again_and_again_is_made_ever_more_seldom(placed: bool) -> None:  # noqa: FBT001
    world = gang(spares=1, backoffSeconds=100)
    tells(world, round_=1, step=20)
    made = []
    for _ in range(4):
        pod = world.pod(2)
        world.pods[pod.name] = replace(pod, placed_at=world.now if placed else None, gone=True)
        deleted = world.now
        while world.pod(2).incarnation == pod.incarnation:
            world.now += timedelta(seconds=10)
            world.ended_seconds = (world.now - deleted).total_seconds()
            world.one_pass()
            assert world.ended_seconds < 1000
        made.append((world.now - deleted).total_seconds())
    assert made == sorted(made)
    assert made[-1] >= 2 * 100 * 0.5


def test_a_spare_that_the_api_server_did_not_take_is_asked_for_again_under_another_name_after_a_minute() -> None:
    world = gang(spares=1)
    tells(world, round_=1, step=20)
    del world.pods["flux-1-2"]
    world.one_pass()
    del world.pods["flux-1-2-i2"]
    world.one_pass()
    assert states(world) == (1, None, [(2, 2)])
    assert "flux-1-2-i2" not in world.pods, "it may have been made, and be gone again"
    world.now += timedelta(seconds=60)
    tells(world, round_=1, step=20)
    world.one_pass()
    assert states(world) == (1, None, [(2, 3)])
    assert "flux-1-2-i3" in world.pods


def test_a_spare_that_a_quota_refused_at_the_start_is_no_fault_of_anybody() -> None:
    world = World(job=job(spec=spec(spares=1, recovery={"inPlace": "Auto"})), defaults=KEYED)
    world.settle()
    del world.pods["flux-1-2"]
    world.start_all()
    world.settle()
    tells(world, round_=1, step=20)
    world.one_pass()
    plan = world.one_pass()
    assert states(world) == (1, None, [(2, 2)])
    assert world.job.status.last_fault is None
    (said,) = [event.message for event in plan.events if event.reason == "PodReplaced"]
    assert said == "flux-1-2 is not there. The round does without it. The pod is made anew."


def test_a_spare_of_another_release_s_gang_is_not_made_anew_and_the_gang_trains_on() -> None:
    world = gang(spares=1)
    tells(world, round_=1, step=20)
    world.defaults = replace(KEYED, trainer_image="trainer:next")
    raw = world.job.spec.to_manifest() if world.job.spec else {}
    world.job = replace(world.job, spec=spec(**{**raw, "recovery": {"inPlace": "Auto", "hangSeconds": 99}}))
    world.end(2, 80)
    world.settle()
    assert (states(world), world.job.status.phase) == ((1, None, []), "Running")


def test_a_new_pod_that_keeps_off_a_node_which_may_be_used_again_is_made_anew_without_that() -> None:
    world = gang(nodes=3, least=1)
    world.end(2, 80, xid=79)
    book(world, rank=2, nodes=2)
    tells(world, 0, 1, round_=2, lost=(2,))
    world.settle()
    assert (states(world), world.pod(2).keeps_off) == ((1, None, [(2, 2)]), {"node-2"})
    world.now += timedelta(seconds=world.job.spec.recovery.window_seconds + 1 if world.job.spec else 0)
    tells(world, 0, 1, round_=2, step=40, lost=(2,))
    world.settle()
    assert (world.job.status.attempt, world.pod(2).keeps_off) == (1, set())
    waiting = world.pod(2).name
    assert sorted(world.pods) == ["flux-1-0", "flux-1-1", waiting]
    world.now += timedelta(seconds=120)
    tells(world, 0, 1, round_=2, step=50, lost=(2,))
    world.settle()
    assert world.pod(2).name == waiting, "once"
