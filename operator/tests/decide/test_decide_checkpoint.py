"""status.latestCheckpoint is the newest one that anybody told of: also in a pod's last words, also by beginning with it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from jobs import job, spec
from worlds import World


def newest(world: World) -> tuple[int, str] | None:
    found = world.job.status.latest_checkpoint
    return (found.step, found.path.rpartition("/")[2]) if found else None


def leave(world: World, rank: int, code: int, *, saved: int) -> None:
    """A rank of the first attempt ends, and its report says which checkpoint its attempt saved last."""
    world.end(rank, code, attempt=1)
    name = f"flux-1-{rank}"
    ending = world.pods[name].ending
    assert ending is not None
    assert ending.report is not None
    said = replace(ending.report, step=saved, checkpoint_step=saved)
    world.pods[name] = replace(world.pods[name], ending=replace(ending, report=said))


def test_after_a_fault_it_is_what_the_pods_had_saved_since_the_last_look() -> None:
    world = World()
    world.running(step=60, saved=50)
    leave(world, 0, 1, saved=75)
    world.one_pass()
    assert world.pods["flux-1-1"].deleting, "nobody waits for the others to stop"
    assert world.job.status.phase == "Recovering"
    assert newest(world) == (75, "step-75-a1")
    assert world.job.status.latest_checkpoint is not None
    assert world.job.status.latest_checkpoint.relative_path == "flux/checkpoints/step-75-a1"


@pytest.mark.parametrize("code", [82, 86])
def test_a_peer_that_speaks_only_once_it_was_told_to_go_is_heard(code: int) -> None:
    world = World()
    world.running(step=60, saved=50)
    del world.pods["flux-1-1"]
    world.one_pass()
    leave(world, 0, code, saved=75)
    world.settle()
    assert (world.job.status.attempt, newest(world)) == (2, (75, "step-75-a1"))


def test_it_is_never_behind_the_step_that_the_current_attempt_began_with() -> None:
    world = World()
    world.running(step=60, saved=50)
    for _ in range(2):
        world.end(1, 80)
        world.settle()
        world.kubelets()
        world.running(step=101, resumed=100)
    assert world.job.status.attempt == 3
    assert newest(world) == (100, "step-100-a1"), "the third attempt began with what the first had saved"


def test_one_that_is_told_with_its_path_is_not_guessed_at() -> None:
    world = World()
    world.running(step=60, saved=50)
    world.end(1, 80)
    world.settle()
    world.kubelets()
    world.running(step=51, resumed=50)
    assert newest(world) == (50, "step-50-a1")
    assert world.job.status.latest_checkpoint is not None
    assert world.job.status.latest_checkpoint.save_time is not None


def test_of_what_the_output_held_before_the_job_and_of_other_trainers_no_path_is_made_up() -> None:
    world = World()
    world.running(step=60, resumed=50)
    assert newest(world) is None
    custom = World(job=job(spec=spec(training=None, custom={"command": ["train"]}, pod={"image": "mine"})))
    custom.running(step=60)
    custom.end(1, 1)
    custom.settle()
    custom.kubelets()
    custom.running(step=51, resumed=50)
    assert newest(custom) is None
