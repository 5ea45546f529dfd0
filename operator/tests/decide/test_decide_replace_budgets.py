"""What the loss of a pod costs of the budgets, and what forgets what was charged before."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from replacing import cut_off, gang, go_on, kill, lost_before, missed, states
from worlds import World

from oarlock_api.contract.status import MemoryStatus


def test_new_pods_that_are_always_lost_use_the_budget_up_though_a_checkpoint_was_made_before() -> None:
    world = gang(maxInfrastructureRestarts=3)
    world.step(20, saved=20)
    world.now += timedelta(seconds=11)
    world.one_pass()
    world.progress = None
    for _ in range(4):
        world.start_all()
        pod = world.pod(1)
        world.nodes.clear()
        world.pods[pod.name] = replace(pod, gone=True, node_lost=True)
        world.one_pass()
    assert world.job.status.reason == "InfrastructureRestartsExhausted"


def lose(world: World, *, resumed: int) -> None:
    """Pod 2 is gone; where it is made anew alone, the gang goes on from this step."""
    pod = world.pod(2)
    world.pods[pod.name] = replace(pod, gone=True)
    world.progress = None
    world.one_pass()
    if world.job.status.recovery.stage == "Replace":
        go_on(world, 2, resumed=resumed)


def test_losses_one_after_the_other_without_a_newer_checkpoint_end_the_job() -> None:
    world = gang(maxRestartsWithoutProgress=2)
    for _ in range(3):
        lose(world, resumed=0)
    assert world.job.status.reason == "NoProgress"


def losses_of(world: World, *, told_of_memory: bool) -> list[int]:
    """Five pods are lost at later and later steps; each round goes on from memory, where the last one was."""
    without = []
    for step in range(30, 80, 10):
        held(world, step, step if told_of_memory else None)
        lose(world, resumed=step)
        without.append(world.job.status.restarts.without_progress)
    return without


def held(world: World, step: int, in_memory: int | None, *, copied: bool | None = True) -> None:
    """Training is at this step, and all nodes have a state in memory."""
    world.now += timedelta(seconds=11)
    world.step(step)
    assert world.progress is not None
    if in_memory is not None:
        world.progress = replace(world.progress, memory=MemoryStatus(in_memory, world.now.isoformat(), copied=copied))
    world.one_pass()


@pytest.mark.parametrize("told_of_memory", [True, False])
def test_losses_after_which_the_gang_goes_on_from_later_and_later_steps_in_memory_never_end_the_job(
    told_of_memory: bool,  # noqa: FBT001
) -> None:
    world = gang()
    without = losses_of(world, told_of_memory=told_of_memory)
    assert states(world) == (1, None, [])
    assert max(without) <= 1


def test_losses_at_the_same_step_end_the_job_though_the_gang_goes_on_from_memory() -> None:
    world = gang(maxRestartsWithoutProgress=2)
    for _ in range(6):
        held(world, 20, 20)
        lose(world, resumed=20)
    assert world.job.status.reason == "NoProgress"
    assert world.job.status.attempts[0].incarnation == 4, "the first one counts as progress, and three as none"


@pytest.mark.parametrize("before", ["a killed pod", "a round"])
def test_a_killed_pod_of_a_gang_that_came_further_in_memory_is_made_anew_alone_though_the_program_failed_before(
    before: str,
) -> None:
    world = gang()
    if before == "a round":
        world.end_round(1, step=30, resumed_step=30)
    else:
        held(world, 30, 30)
        world.progress = None
        kill(world, 2)
        world.one_pass()
        go_on(world, 2, resumed=30)
    held(world, 60, 59)
    world.progress = None
    kill(world, 1)
    world.one_pass()
    assert states(world)[:2] == (1, "Replace")
    assert world.job.status.restarts.application == 1


@pytest.mark.parametrize("copied", [False, None])
def test_a_state_in_memory_that_is_on_one_node_alone_is_lost_with_a_pod_and_no_progress(copied: bool | None) -> None:  # noqa: FBT001
    world = gang()
    world.end_round(1, step=30, resumed_step=30)
    held(world, 60, 59, copied=copied)
    world.progress = None
    kill(world, 1)
    world.one_pass()
    assert states(world)[0] == 2
    assert world.job.status.restarts.application == 2


def test_a_round_of_a_pod_that_came_back_before_it_was_stopped_is_not_charged_again() -> None:
    world = gang()
    missed(world, 3, ago=5)
    world.one_pass()
    counts = world.job.status.restarts
    world.end_round(82, rank=3, why="silent for 5 s", step=20, resumed_step=15)
    world.step(16)
    world.one_pass()
    assert world.job.status.restarts == counts
    assert [(one.round, one.rung) for one in world.job.status.rounds] == [(1, "ReplacePod")]
    world.start_all()
    world.end_round(1, rank=3, step=20, resumed_step=15)
    world.step(16)
    world.one_pass()
    assert world.job.status.restarts.application == counts.application + 1, "the next one's ranks failed by themselves"


def test_what_ranks_ended_by_before_their_pod_was_lost_is_charged_besides() -> None:
    world = gang()
    cut_off(world, 2, unreachable=True)
    world.one_pass()
    before = world.job.status.restarts.application
    world.start_all()
    world.end_round(1, rank=2, why="ValueError: x", step=20, resumed_step=15)
    world.step(16)
    world.one_pass()
    assert world.job.status.restarts.application == before + 1


def test_a_round_that_no_pod_was_lost_in_is_charged_whatever_its_leader_says() -> None:
    world = gang(maxInfrastructureRestarts=9)
    world.end_round(82, rank=1, resumed_step=15, lost_pod=True)
    world.step(16)
    world.one_pass()
    assert [(one.round, one.rung) for one in world.job.status.rounds] == [(1, "RestartRanks")]
    assert world.job.status.restarts.infrastructure == 1
    world.progress = None
    kill(world, 2)
    world.one_pass()
    go_on(world, 2)
    counts = world.job.status.restarts
    world.end_round(82, rank=2, resumed_step=15, lost_pod=True)
    world.step(16)
    world.one_pass()
    assert [one.rung for one in world.job.status.rounds] == ["RestartRanks", "ReplacePod", "RestartRanks"]
    assert world.job.status.restarts.infrastructure == counts.infrastructure + 1, "it was lost once, not twice"


def test_a_checkpoint_since_the_last_failure_of_the_program_forgets_it_and_a_killed_pod_is_made_anew_alone() -> None:
    world = gang()
    lost_before(world)
    world.step(20, saved=20)
    world.now += timedelta(seconds=11)
    world.one_pass()
    kill(world, 2)
    world.one_pass()
    assert states(world) == (1, "Replace", [(2, 2)])
    assert world.job.status.restarts.application == 1
