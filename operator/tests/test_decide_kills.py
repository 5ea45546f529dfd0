"""The operator may die after any write, and the world may do anything meanwhile: the invariants of recovery hold."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import Killed, World, job, spec


def live_on(world: World, act: str) -> None:
    """One thing that happens outside the operator."""
    living = [p for p in world.pods.values() if p.attempt == world.job.status.attempt and not p.stopped]
    if act == "start":
        world.start_all()
    elif act == "kubelets":
        world.kubelets()
    elif act == "wait":
        # Kubelets work in this world: a pod that is told to stop does. Dead ones have a test of their own.
        world.kubelets()
        world.now += timedelta(seconds=61)
    elif act == "step" and any(p.rank == 0 and p.started for p in living):
        world.step(10)
    elif act == "vanish" and living:
        del world.pods[living[0].name]
    elif living and act.isdigit():
        world.end(living[-1].rank, int(act))


HAPPENINGS = ["start", "kubelets", "wait", "step", "vanish", "0", "1", "81", "82", "85", "88"]
ACTS = st.lists(st.sampled_from(HAPPENINGS), max_size=14)


@settings(max_examples=300, deadline=None)
@given(acts=ACTS, kills=st.lists(st.integers(1, 6), max_size=14))
def test_whatever_happens_attempts_rise_gangs_never_overlap_and_ends_are_clean(
    acts: list[str], kills: list[int]
) -> None:
    # The checks stand in World, after every single write.
    world = World(job=job(spec=spec(recovery={"maxApplicationRestarts": 2, "maxInfrastructureRestarts": 2})))
    for number, act in enumerate(acts):
        live_on(world, act)
        if number < len(kills):
            world.kill_at = world.writes + kills[number]
            try:
                world.settle(passes=4)
            except Killed:
                world.progress = None
            world.kill_at = None
        world.settle()
    assert world.job.status.attempt <= 6


def scenario(world: World) -> None:
    """A start, a crash, a recovery, a success; each line may be repeated after a kill."""
    for done in (False, True):
        world.settle()
        world.start_all()
        world.settle()
        living = [p for p in world.pods.values() if p.attempt == world.job.status.attempt and not p.stopped]
        if not living:
            return
        for pod in living:
            world.end(pod.rank, 0 if done else 1)
        world.settle()
        world.kubelets()
        world.now += timedelta(seconds=61)


def undisturbed() -> World:
    world = World()
    scenario(world)
    return world


@pytest.mark.parametrize("kill_at", range(1, undisturbed().writes + 1))
def test_a_kill_after_any_write_leads_to_the_same_end_without_an_extra_attempt(kill_at: int) -> None:
    expected = undisturbed()
    world = World(kill_at=kill_at)
    while world.job.status.completion_time is None:
        try:
            world.settle()
            world.kill_at = None if world.writes >= kill_at else kill_at
            world.start_all()
            world.settle()
            code = 1 if world.job.status.attempt == 1 else 0
            for pod in [p for p in world.pods.values() if p.attempt == world.job.status.attempt and not p.stopped]:
                if pod.started:
                    world.end(pod.rank, code)
            world.settle()
        except Killed:
            world.kill_at = None
        world.kubelets()
        world.now += timedelta(seconds=61)
    assert world.job.status.phase == expected.job.status.phase == "Succeeded"
    assert world.job.status.attempt == expected.job.status.attempt == 2
    assert sorted(world.pods) == sorted(expected.pods)
