"""A pod that ignores even SIGKILL, as a process in an endless system call on a node that is ready: it is told, and named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest
from worlds import World, condition


def wished(world: World, *, suspend: bool) -> None:
    assert world.job.spec is not None
    world.job = replace(world.job, spec=world.job.spec.model_copy(update={"suspend": suspend}))


def suspended(world: World) -> None:
    world.running()
    wished(world, suspend=True)


def failed(world: World) -> None:
    world.running()
    world.end(0, 85)


def succeeded(world: World) -> None:
    """Beside a pod of the attempt before, which drain has given up."""
    world.running()
    world.end(0, 81)
    world.one_pass()
    old = world.pods.pop("flux-1-1")
    world.settle()
    world.kubelets()
    world.settle()
    world.start_all()
    world.settle()
    world.pods[old.name] = old
    for rank in (0, 1):
        world.end(rank, 0)


@pytest.mark.parametrize("ending", [suspended, failed, succeeded])
def test_a_job_that_cannot_end_because_a_pod_does_not_stop_says_so_and_names_it(
    ending: Callable[[World], None],
) -> None:
    world = World()
    ending(world)
    told = []
    for _ in range(100):
        told += [event for event in world.one_pass().events if event.reason == "PodNotStopping"]
        world.now += timedelta(hours=1)
    assert condition(world, "Degraded") == ("True", "PodNotStopping")
    assert condition(world, "Running") == ("False", "PodNotStopping")
    words = next(known.message for known in world.job.status.conditions if known.type == "Degraded")
    assert "flux-1-1 on node-1" in words
    assert len(told) == 1
    assert world.job.status.completion_time is None


def test_while_its_pods_have_time_to_save_a_job_that_is_suspended_is_as_expected() -> None:
    world = World()
    suspended(world)
    world.one_pass()
    world.now += timedelta(seconds=329)
    world.one_pass()
    assert condition(world, "Degraded") == ("False", "AsExpected")
    world.now += timedelta(seconds=2)
    world.one_pass()
    assert condition(world, "Degraded") == ("True", "PodNotStopping")


def test_once_the_pod_is_gone_the_job_ends_and_nothing_is_degraded() -> None:
    world = World()
    suspended(world)
    for _ in range(3):
        world.one_pass()
        world.now += timedelta(hours=1)
    world.kubelets()
    world.settle()
    assert world.job.status.phase == "Suspended"
    assert condition(world, "Degraded") == ("False", "AsExpected")
