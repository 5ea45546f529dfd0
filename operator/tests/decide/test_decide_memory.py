"""The state that nodes have in memory is in the job's status while its pods are there."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from jobs import job, spec
from worlds import World

from oarlock_api.contract.status import MemoryStatus
from oarlock_api.progress import StateInMemory
from oarlock_operator.model.observation import Defaults

SAVED = datetime(2026, 1, 1, tzinfo=UTC)


def training() -> World:
    """A gang that has the state after step 18 in memory."""
    world = World(job=job(spec=spec(nodes=4, recovery={"inPlace": "Auto"})))
    world.defaults = Defaults(trainer_image="trainer:test", keys=(b"k" * 32,))
    world.running(step=20)
    world.now += timedelta(minutes=1)
    world.step(21)
    assert world.progress is not None
    world.progress = replace(world.progress, memory=MemoryStatus(18, SAVED.isoformat(), copied=True))
    world.one_pass()
    return world


def test_rank_0_s_word_of_the_state_in_memory_is_in_the_status() -> None:
    assert training().job.status.memory == StateInMemory(step=18, save_time=SAVED, copied=True)


def test_it_stays_there_while_a_lost_pod_is_made_anew() -> None:
    world = training()
    world.progress = None
    world.end(2, 137, with_report=False)
    world.one_pass()
    assert world.job.status.recovery.stage == "Replace"
    assert world.job.status.memory is not None


def test_it_ends_with_its_attempt_and_with_the_job() -> None:
    world = training()
    world.progress = None
    for rank in range(4):
        world.end(rank, 1)
    world.one_pass()
    assert world.job.status.attempt == 2
    assert world.job.status.memory is None
    done = training()
    for rank in range(4):
        done.end(rank, 0)
    done.settle()
    assert done.job.status.phase == "Succeeded"
    assert done.job.status.memory is None
