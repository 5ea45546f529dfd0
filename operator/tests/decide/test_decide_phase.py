"""The phase that people read: Running says that ranks work, and what is only true of work that goes on goes with it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from jobs import job, spec
from worlds import World, condition

from oarlock_api.contract.figures import Figures

CUSTOM = spec(training=None, custom={"command": ["train"]}, pod={"image": "mine"})


def up(*, custom: bool = False) -> World:
    """All containers have started, and nothing was told of a step."""
    world = World(job=job(spec=CUSTOM if custom else spec()))
    world.settle()
    world.start_all()
    world.settle()
    assert world.job.status.recovery.stage == "FirstStep"
    return world


def tell(world: World, phase: str) -> str | None:
    """Rank 0 says where it is, once; what the job's phase is then, and in the passes that hear nothing."""
    world.step(1)
    assert world.progress is not None
    world.progress = replace(world.progress, phase=phase, figures=Figures(), first_step_at="", resumed_from_step=None)
    world.one_pass()
    heard = world.job.status.phase
    world.progress = None
    world.one_pass()
    assert world.job.status.phase == heard
    return heard


def test_a_gang_whose_containers_run_is_starting_until_its_ranks_work() -> None:
    world = up()
    assert (world.job.status.phase, condition(world, "Running")) == ("Starting", ("False", "Starting"))
    assert [tell(world, phase) for phase in ("Preflight", "Starting", "Training")] == [
        "Starting",
        "Starting",
        "Running",
    ]
    assert condition(world, "Running") == ("True", "Running")


def test_ranks_that_encode_first_work_and_go_on_working_while_they_load_the_model() -> None:
    world = up()
    assert [tell(world, phase) for phase in ("Preprocessing", "Starting")] == ["Running", "Running"]


def test_a_trainer_of_the_jobs_own_works_once_it_was_started() -> None:
    world = up(custom=True)
    assert [tell(world, phase) for phase in ("Preflight", "Starting")] == ["Starting", "Running"]


def test_a_gang_that_recovers_does_so_until_its_first_step() -> None:
    world = World()
    world.crash()
    world.start_all()
    world.settle()
    assert tell(world, "Training") == "Recovering"


@pytest.mark.parametrize("ends", ["crash", "suspend", "fail"])
def test_nothing_is_said_of_when_it_will_be_done_while_nobody_works_on_it(ends: str) -> None:
    world = World()
    world.running(step=20)
    assert (world.job.status.summary.eta, world.job.status.progress and world.job.status.progress.eta_seconds) == (
        "40s",
        40,
    )
    if ends == "suspend":
        world.job = replace(world.job, spec=spec(suspend=True))
    else:
        world.end(1, 1 if ends == "crash" else 85)
    for _ in range(3):
        world.one_pass()
        assert world.job.status.summary.eta is None
        assert world.job.status.progress is not None
        assert (world.job.status.progress.step, world.job.status.progress.eta_seconds) == (20, None)
        world.kubelets()
    if ends == "crash":
        world.now += timedelta(seconds=400)
        world.running(step=21)
        assert world.job.status.summary.eta is not None
