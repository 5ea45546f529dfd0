"""A program that is missing from an image, and one that only a node's copy of the image lacks."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from worlds import World, condition

from oarlock_operator.model.observation import Ending

RUNC = (
    "failed to create containerd task: runc create failed: unable to start container process: error during container init: "
    'exec: "oarlock-trainer": executable file not found in $PATH: unknown'
)
NOT_STARTED = Ending(128, reason="StartError", message=RUNC)
SHELL = Ending(127, reason="Error", message="exec: oarlock-trainer: not found")


def ends(world: World, rank: int, ending: Ending) -> None:
    name = f"flux-{world.job.status.attempt}-{rank}"
    world.pods[name] = replace(world.pods[name], started=True, ready=False, ending=ending)
    world.settle()
    world.kubelets()
    world.settle()


def place(world: World, **changes: str) -> None:
    for name, pod in world.pods.items():
        if pod.attempt == world.job.status.attempt:
            world.pods[name] = replace(pod, scheduled=True, node=f"node-{pod.rank}", **changes)


def starting(world: World) -> World:
    world.settle()
    world.start_all()
    return world


@pytest.mark.parametrize("ending", [NOT_STARTED, SHELL], ids=["the runtime says so", "a shell says so"])
def test_a_node_that_lacks_the_program_of_an_image_that_has_run_before_is_left(ending: Ending) -> None:
    world = World()
    world.crash()
    ends(starting(world), 1, ending)
    status = world.job.status
    assert (status.attempt, status.reason, status.completion_time) == (3, "PodFailed", None)
    assert "crictl rmi" in (status.message or "")
    assert [(node.name, node.strict) for node in status.avoided_nodes] == [("node-1", False)]
    assert status.restarts.infrastructure == 1


def test_a_node_that_lacks_the_program_with_which_its_peers_started_is_left() -> None:
    world = World()
    ends(starting(world), 1, NOT_STARTED)
    assert (world.job.status.attempt, world.job.status.reason) == (2, "PodFailed")


def test_peers_that_run_a_shell_do_not_have_the_program_that_it_does_not_find() -> None:
    world = World()
    ends(starting(world), 1, SHELL)
    assert (world.job.status.phase, world.job.status.reason) == ("Failed", "ConfigurationError")


def test_what_ran_before_a_job_was_suspended_says_nothing_of_the_image_that_it_has_now() -> None:
    world = World()
    world.crash()
    world.running()
    spec = world.job.spec
    assert spec
    world.job = replace(world.job, spec=spec.model_copy(update={"suspend": True}))
    world.settle()
    world.kubelets()
    world.settle()
    world.job = replace(world.job, spec=spec)
    world.settle()
    place(world)
    ends(world, 1, NOT_STARTED)
    assert (world.job.status.phase, world.job.status.reason) == ("Failed", "ConfigurationError")


def test_a_container_that_cannot_be_made_of_an_image_that_has_run_before_has_its_time() -> None:
    world = World()
    world.crash()
    world.settle()
    place(world, obstacle="CreateContainerError: executable file `oarlock-trainer` not found in $PATH")
    world.settle()
    assert condition(world, "Running") == ("False", "CreateContainerError")
    assert world.job.status.completion_time is None
    world.now += timedelta(seconds=3601)
    world.settle()
    world.kubelets()
    world.settle()
    assert world.job.status.reason == "StartupDeadlineExceeded"
