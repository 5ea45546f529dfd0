"""GPU time is counted while a gang trains, with what is written anyway, and never twice."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta

import pytest
from gang_worlds import VOLCANO, hold, stages
from jobs import job, spec
from world_writes import Killed
from worlds import World

from oarlock_api.status import TrainingJobStatus

GPUS = 4
"""Of the job in jobs.py."""


def train(world: World, seconds: int, *, every: int = 10) -> None:
    """Rank 0 tells of a step at each look."""
    for step in range(seconds // every):
        world.step(step + 2)
        world.now += timedelta(seconds=every)
        world.one_pass()


@dataclass
class OlderApi(World):
    """Its schema does not know what an attempt has counted, and drops it."""

    def write_status(self, status: TrainingJobStatus) -> None:
        older = tuple(one.model_copy(update={"gpu_seconds": None}) for one in status.attempts)
        super().write_status(status.model_copy(update={"attempts": older}))


def counted(world: World) -> tuple[int, int]:
    return world.job.status.gpu_seconds, world.job.status.wasted_gpu_seconds


def test_a_job_that_trains_shows_what_it_has_held_so_far_and_its_start_as_wasted() -> None:
    world = World()
    world.running()
    began = world.job.status.attempts[-1].created_time
    assert began is not None
    train(world, 3600)
    held = (world.now - began).total_seconds()
    assert counted(world)[0] == round(held * GPUS)
    assert counted(world)[1] == 4 * GPUS, "from the pods' start to the first step"
    assert world.job.status.attempts[-1].gpu_seconds == counted(world)[0]


def test_counting_adds_no_write_to_those_of_the_progress() -> None:
    world = World()
    world.running()
    before = world.writes
    for _ in range(9):
        world.step(2)
        world.now += timedelta(seconds=1)
        world.one_pass()
    assert world.writes == before


def test_the_sum_is_that_of_the_attempts_however_often_the_operator_died() -> None:
    def life(kills: range) -> World:
        world = World()
        world.running()
        for kill in kills:
            world.kill_at = world.writes + kill
            try:
                train(world, 30)
            except Killed:
                world.kill_at = None
        for _ in range(2):
            train(world, 60)
            world.end(1, 1)
            world.settle()
            world.kubelets()
            world.now += timedelta(seconds=100)
            world.settle()
            world.running()
        return world

    for world in (life(range(0)), life(range(1, 4))):
        assert len(world.job.status.attempts) == 3
        assert world.job.status.gpu_seconds == sum(one.gpu_seconds or 0 for one in world.job.status.attempts)
        for one in world.job.status.attempts[:-1]:
            assert one.created_time is not None
            assert one.end_time is not None
            assert one.gpu_seconds == round((one.end_time - one.created_time).total_seconds() * GPUS)


def test_a_clock_that_steps_back_takes_nothing_away_and_adds_nothing_twice() -> None:
    world = World()
    world.running()
    train(world, 600)
    before = counted(world)
    world.now -= timedelta(seconds=300)
    train(world, 100)
    assert counted(world) == before
    train(world, 300)
    assert before[0] < counted(world)[0] <= before[0] + 100 * GPUS


def test_a_trainer_that_tells_nothing_is_counted_every_ten_minutes() -> None:
    world = World(job=job(spec=spec(training=None, custom={"command": ["train"]}, pod={"image": "mine"})))
    world.settle()
    world.start_all()
    world.settle()
    world.now += timedelta(minutes=31)
    world.settle()
    shown = []
    for _ in range(120):
        world.now += timedelta(seconds=10)
        world.one_pass()
        shown.append(world.job.status.gpu_seconds)
    assert len(set(shown)) == 3
    assert shown[-1] >= 1200 * GPUS


def test_a_queue_that_took_no_pods_before_it_let_the_gang_in_takes_nothing_from_what_they_held() -> None:
    wanted = spec(training=None, custom={"command": ["train"]}, pod={"image": "mine"}, scheduling={"gang": "Volcano"})
    world = World(job=job(spec=wanted), systems=VOLCANO)
    world.one_pass()
    world.pods.clear()
    world.hindrance = "the podgroup phase is Pending"
    hold(world, "32 of 16 GPUs asked for")
    world.one_pass()
    world.pods.clear()
    world.now += timedelta(hours=9)
    hold(world, "")
    world.hindrance = ""
    world.running()
    assert stages(world)["queue"] == 9 * 3_600_000
    began = world.job.status.attempts[-1].created_time
    assert began is not None
    world.now = began + timedelta(minutes=31)
    world.settle()
    assert world.job.status.reason == "Training", "it has run for half an hour, as is told of trainers that say nothing"
    assert counted(world)[0] == pytest.approx(31 * 60 * GPUS, abs=GPUS)


def test_an_api_that_drops_the_count_has_an_attempt_counted_once_at_its_end() -> None:
    world = OlderApi()
    world.running()
    train(world, 600)
    assert counted(world) == (0, 0)
    for rank in (0, 1):
        world.end(rank, 0)
    world.settle()
    first = world.job.status.attempts[0]
    assert first.end_time is not None
    assert first.created_time is not None
    assert counted(world) == (round((first.end_time - first.created_time).total_seconds() * GPUS), 4 * GPUS)


@pytest.mark.parametrize("ends", [0, 1])
def test_an_attempt_that_an_older_operator_began_is_counted_whole(ends: int) -> None:
    world = World()
    world.running()
    train(world, 60)
    status = world.job.status
    older = status.model_copy(
        update={
            "gpu_seconds": 0,
            "wasted_gpu_seconds": 0,
            "attempts": tuple(one.model_copy(update={"gpu_seconds": None}) for one in status.attempts),
        }
    )
    world.job = replace(world.job, status=older)
    for rank in (0, 1):
        world.end(rank, ends)
    world.settle()
    first = world.job.status.attempts[0]
    assert first.end_time is not None
    assert first.created_time is not None
    assert counted(world) == (round((first.end_time - first.created_time).total_seconds() * GPUS), 4 * GPUS)


def half_placed() -> World:
    """One of two pods has had a node for 115 s; the other has found none for 120."""
    world = World(job=job(spec=spec(scheduling={"placementTimeoutSeconds": 600})))
    world.settle()
    began = world.job.status.attempts[-1].created_time
    assert began is not None
    first = world.pods["flux-1-0"]
    placed = began + timedelta(seconds=5)
    world.pods["flux-1-0"] = replace(first, scheduled=True, started=True, node="node-0", placed_at=placed)
    world.now = began + timedelta(seconds=120)
    world.settle()
    assert counted(world) == (0, 0)
    return world


@pytest.mark.parametrize("leaves", ["times out", "is suspended", "fails"])
@pytest.mark.parametrize("forgotten", [False, True])
def test_of_a_gang_that_was_never_whole_only_pods_with_a_node_have_held_gpus(leaves: str, forgotten: bool) -> None:  # noqa: FBT001
    world = half_placed()
    if leaves == "times out":
        world.job = replace(world.job, spec=spec(scheduling={"placementTimeoutSeconds": 60}))
    elif leaves == "is suspended":
        world.job = replace(world.job, spec=spec(suspend=True))
    else:
        world.end(0, 85)
    world.one_pass()
    if forgotten:
        world.pods.clear()
    world.kubelets()
    world.settle()
    assert world.job.status.attempts[0].end_time is not None
    assert counted(world) == (pytest.approx(115 * 2, abs=1), pytest.approx(115 * 2, abs=1))


def test_a_pod_that_waits_for_others_with_its_node_in_hand_holds_gpus_that_make_no_progress() -> None:
    world = half_placed()
    now = world.now
    world.pods["flux-1-1"] = replace(world.pods["flux-1-1"], placed_at=now)
    world.running()
    train(world, 100)
    held = 2 * 115 + (world.now - now).total_seconds() * GPUS
    assert counted(world)[0] == pytest.approx(held, abs=2)
    assert counted(world)[1] == pytest.approx(2 * 115 + 4 * GPUS, abs=2)
