"""Containers that run on beside a trainer that has ended: they keep GPUs, and a job is over only once those are free."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from jobs import job, spec
from worlds import World

from oarlock_operator.model.plan import DeletePods

GRACE = 5


def trained(**fields: object) -> World:
    world = World(job=job(spec=spec(**fields)))
    world.running()
    return world


def end(world: World, rank: int, code: int = 0, *running: str) -> None:
    """A trainer ends, and these other containers of its pod run on."""
    world.end(rank, code, with_report=code != 0)
    pod = world.pod(rank)
    assert pod.ending is not None
    ended = replace(pod.ending, at=world.now)
    world.pods[pod.name] = replace(pod, ending=ended, still_running=running)


def free_at_last(world: World, *, within: float) -> None:
    """Passes, second by second, until no pod runs anything; never longer than this."""
    until = world.now + timedelta(seconds=within)
    while any(pod.still_running for pod in world.pods.values()):
        assert world.now < until, world.job.status.message
        world.one_pass()
        world.kubelets()
        world.now += timedelta(seconds=1)


def test_a_job_has_succeeded_once_its_side_containers_are_gone_and_pods_without_any_keep_their_logs() -> None:
    world = trained()
    end(world, 0)
    end(world, 1, 0, "shipper")
    plan = world.one_pass()
    assert (world.job.status.phase, plan.actions) == ("Running", ())
    message = world.job.status.message or ""
    assert "flux-1-1 on node-1 (shipper)" in message
    free_at_last(world, within=30)
    world.settle()
    assert world.job.status.phase == "Succeeded"
    assert [pod.rank for pod in world.pods.values()] == [0]
    assert world.job.status.attempts[-1].succeeded_ranks == "0-1"


def test_side_containers_that_end_by_themselves_are_left_to() -> None:
    world = trained()
    end(world, 0, 0, "shipper")
    end(world, 1)
    world.one_pass()
    pod = world.pod(0)
    world.pods[pod.name] = replace(pod, still_running=())
    world.settle()
    assert world.job.status.phase == "Succeeded"
    assert len(world.pods) == 2


def test_a_job_that_fails_frees_its_gpus_too() -> None:
    world = trained()
    end(world, 1, 85, "shipper")
    free_at_last(world, within=30)
    world.kubelets()
    world.settle()
    assert world.job.status.phase == "Failed"


def test_a_recovery_gives_a_side_container_the_grace_of_a_fault() -> None:
    world = trained(recovery={"faultGracePeriodSeconds": GRACE}, pod={"terminationGracePeriodSeconds": 300})
    end(world, 1, 1, "shipper")
    graces = {}
    for _ in range(10):
        for action in world.one_pass().actions:
            if isinstance(action, DeletePods):
                graces |= dict.fromkeys((name for name, _ in action.pods), action.grace_seconds)
        world.kubelets()
        world.now += timedelta(seconds=1)
    assert graces["flux-1-1"] == GRACE


@pytest.mark.parametrize("restarted", [False, True], ids=["one operator", "an operator that starts anew"])
def test_the_pod_of_a_rank_that_ended_well_may_be_collected_while_another_works_on(*, restarted: bool) -> None:
    world = trained()
    end(world, 1)
    world.settle()
    pod = world.pod(1)
    if restarted:
        del world.pods[pod.name]
    else:
        world.pods[pod.name] = replace(pod, gone=True)
    world.settle()
    assert world.job.status.attempt == 1
    assert world.job.status.ranks.succeeded == 1
    end(world, 0)
    world.settle()
    assert world.job.status.phase == "Succeeded"


def test_a_rank_that_runs_anew_has_not_ended_well_yet() -> None:
    world = trained()
    end(world, 1)
    world.settle()
    assert world.job.status.attempts[-1].succeeded_ranks == "1"
    pod = world.pod(1)
    world.pods[pod.name] = replace(pod, uid="new", ending=None, incarnation=2)
    world.settle()
    assert world.job.status.attempts[-1].succeeded_ranks is None
