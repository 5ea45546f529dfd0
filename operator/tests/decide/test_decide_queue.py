"""Gangs in a queue: waiting is a stage of its own, starts no deadline and costs no budget."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from gang_worlds import KUEUE, NATIVE, VOLCANO, end_all, gate, hold, queued, stages
from jobs import job, spec
from worlds import World, condition

from oarlock_api.scheduling import Gang
from oarlock_operator.decide import decide
from oarlock_operator.model.node_maintenance import Maintenance
from oarlock_operator.model.observation import Group
from oarlock_operator.model.observed_nodes import Node
from oarlock_operator.model.plan import Need


def test_time_in_a_queue_is_a_stage_of_its_own_and_no_delay_of_the_scheduler() -> None:
    world = queued()
    assert world.job.status.phase == "Queued"
    assert condition(world, "Scheduled") == ("False", "Queued")
    assert (world.job.status.reason, world.job.status.message) == ("Queued", "in the queue team")
    world.now += timedelta(hours=2)
    world.settle()
    assert world.job.status.attempt == 1, "placementTimeoutSeconds has not begun"
    gate(world, gated=False)
    world.settle()
    assert (world.job.status.phase, world.job.status.reason) == ("Starting", "Starting")
    took = stages(world)["queue"] or 0
    assert 7_200_000 <= took < 7_201_000
    world.now += timedelta(seconds=61)
    world.one_pass()
    assert world.job.status.attempts[-1].reason == "PlacementTimeout"


def test_time_in_a_queue_counts_neither_as_active_nor_as_gpu_time() -> None:
    world = queued(activeDeadlineSeconds=600)
    world.now += timedelta(hours=2)
    world.settle()
    gate(world, gated=False)
    world.settle()
    assert 7_200 <= world.job.status.inactive_seconds <= 7_201
    world.start_all()
    world.settle()
    for rank in (0, 1):
        world.end(rank, 0)
    world.settle()
    assert world.job.status.phase == "Succeeded"
    assert world.job.status.gpu_seconds <= 4


def test_a_job_that_is_suspended_in_its_queue_keeps_what_it_waited() -> None:
    world = queued()
    world.now += timedelta(hours=1)
    world.job = replace(world.job, spec=spec(suspend=True, scheduling={"queue": "team"}))
    world.settle()
    assert world.job.status.phase == "Suspended"
    assert (stages(world)["queue"] or 0) >= 3_600_000
    assert world.job.status.inactive_seconds >= 3600


def test_a_group_that_its_queue_holds_back_waits_though_no_pod_is_gated() -> None:
    world = World(systems=VOLCANO)
    world.settle()
    hold(world, "32 of 16 GPUs asked for")
    world.now += timedelta(hours=1)
    world.settle()
    assert (world.job.status.phase, world.job.status.attempt) == ("Queued", 1)
    assert "32 of 16 GPUs" in (world.job.status.message or "")
    hold(world, "")
    world.settle()
    assert world.job.status.phase == "Starting"


def test_pods_that_kueue_takes_back_start_again_and_cost_no_budget() -> None:
    world = queued()
    gate(world, gated=False)
    world.settle()
    world.running(saved=1)
    for name, pod in world.pods.items():
        until = world.now + timedelta(seconds=300)
        world.pods[name] = replace(pod, deleting=True, delete_by=until, disrupted="StoppedByKueue")
    world.one_pass()
    assert world.job.status.attempt == 1, "they save"
    for rank in (0, 1):
        world.end(rank, 86)
    world.settle()
    status = world.job.status
    assert (status.attempt, status.attempts[-1].reason) == (2, "Evicted")
    assert (status.restarts.infrastructure, status.restarts.application, status.restarts.voluntary) == (0, 0, 1)


def test_a_pod_that_was_gated_and_is_being_deleted_holds_nobody_up() -> None:
    world = queued()
    for name, pod in world.pods.items():
        world.pods[name] = replace(pod, deleting=True, disrupted="StoppedByKueue")
    world.settle()
    assert sorted(name for name in world.pods if name.startswith("flux-2")) == ["flux-2-0", "flux-2-1"]


def test_a_group_that_waits_without_pods_is_in_its_queue_and_has_its_time_to_be_placed_once_it_is_let_in() -> None:
    denied = 'admission webhook "validatepod.volcano.sh" denied the request: the podgroup phase is Pending'
    wanted = spec(scheduling={"gang": "Volcano", "placementTimeoutSeconds": 600}, activeDeadlineSeconds=1800)
    world = World(job=job(spec=wanted), systems=VOLCANO)

    def look() -> list[str]:
        told = [event.reason for event in world.one_pass().events]
        world.pods.clear()
        return told

    look()
    world.hindrance = denied
    hold(world, "32 of 16 GPUs asked for")
    assert look() == ["Queued"]
    world.now += timedelta(hours=1)
    assert look() == [], "told once"
    assert (world.job.status.phase, condition(world, "Scheduled")) == ("Queued", ("False", "Queued"))
    assert (world.job.status.attempt, set(world.groups)) == (1, {1})
    hold(world, "")
    look()
    assert (world.job.status.phase, world.job.status.attempt) == ("Starting", 1)
    assert condition(world, "Scheduled") == ("False", "CreateRefused")
    assert world.job.status.inactive_seconds == 3600
    world.now += timedelta(seconds=601)
    look()
    assert world.job.status.attempt == 2


def test_a_gang_in_a_queue_is_looked_at_less_often_than_one_that_trains() -> None:
    world = queued()
    world.now += timedelta(hours=1)
    assert world.one_pass().again_seconds == 60
    gate(world, gated=False)
    world.running()
    assert world.one_pass().again_seconds == 10


def test_a_gang_of_a_queue_leaves_no_node_for_the_end_of_its_queue() -> None:
    moves = {}
    for name, systems in {"Volcano": VOLCANO, "Native": NATIVE}.items():
        world = World(systems=systems)
        world.running()
        world.nodes = {"node-0": Node(name="node-0", maintenance=Maintenance("cordoned", enforced=True))}
        moves[name] = isinstance(decide(world.observe()), Need)
    assert moves == {"Volcano": False, "Native": True}


def let_in_while_nobody_looked(
    world: World, *, admitted: timedelta | None = None, placed: timedelta | None = None
) -> None:
    """Two hours pass, in which the queue let the gang in and the scheduler placed it, so long after its start."""
    began = world.now
    world.now += timedelta(hours=2)
    gate(world, gated=False)
    if admitted is not None:
        waited = Group(name="w", uid="w", attempt=1, api=KUEUE.apis[Gang.KUEUE], ours=False, let_in=began + admitted)
        world.groups = {1: waited}
    if placed is not None:
        for name, pod in world.pods.items():
            at = began + placed + timedelta(minutes=pod.rank)
            world.pods[name] = replace(pod, scheduled=True, node=f"node-{pod.rank}", obstacle="", placed_at=at)


@pytest.mark.parametrize(
    ("admitted", "placed", "minutes"),
    [
        (timedelta(minutes=30), None, 30),
        (None, timedelta(minutes=40), 40),
        (timedelta(minutes=30), timedelta(minutes=40), 30),
        (None, None, 120),
        (timedelta(hours=-1), None, 0),
        (timedelta(hours=3), None, 120),
    ],
    ids=["the Workload tells", "a pod tells", "both tell", "nobody tells", "before it began", "in the future"],
)
def test_the_time_in_a_queue_ends_when_the_gang_was_let_in_and_not_when_an_operator_comes_back(
    admitted: timedelta | None, placed: timedelta | None, minutes: int
) -> None:
    world = queued()
    let_in_while_nobody_looked(world, admitted=admitted, placed=placed)
    world.one_pass()
    assert round((stages(world)["queue"] or 0) / 60_000) == minutes
    assert round(world.job.status.inactive_seconds / 60) == minutes


def test_a_gang_that_was_let_in_and_broke_while_nobody_looked_has_waited_no_longer_than_it_did() -> None:
    world = queued()
    let_in_while_nobody_looked(world, placed=timedelta(minutes=40))
    end_all(world, 1)
    world.settle()
    assert world.job.status.attempt == 2
    assert round((stages(world)["queue"] or 0) / 60_000) == 40
