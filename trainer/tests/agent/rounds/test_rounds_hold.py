"""What must never happen, whatever befalls members, leader and network: found by playing gangs with any such course."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rounds_world import LIMITS, World

from oarlock_local.pytest_tiers import examples
from oarlock_trainer.agent.rounds.membership import Membership
from oarlock_trainer.agent.rounds.model import Round, Wanted

pytestmark = pytest.mark.filterwarnings("ignore::hypothesis.errors.NonInteractiveExampleWarning")

EVENTS = st.tuples(
    st.floats(0.1, 8.0),
    st.sampled_from(
        ["crash", "strike", "break_gpu", "ask", "surge", "kill_pod", "isolate", "silence", "heal", "replace"]
    ),
    st.integers(0, 5),
)
FIXED = st.builds(Membership, nodes=st.integers(1, 4))
CHOSEN = st.builds(
    Membership,
    nodes=st.integers(2, 4),
    spares=st.integers(0, 2),
    least=st.integers(0, 3),
    patience=st.floats(0.5, 4.0),
    can_be_dealt=st.sampled_from([{1, 2, 3}, {1, 3}, {2}, {1, 2}]).map(lambda sizes: sizes.__contains__),
).filter(lambda gang: not gang.is_fixed)
GANGS = pytest.mark.parametrize("gangs", [FIXED, CHOSEN], ids=["all pods train", "members are chosen"])
LINKED = pytest.mark.parametrize("linked", [False, True], ids=["alone", "over a link"])


def live(gang: Membership, seed: int, events: list[tuple[float, str, int]], *, linked: bool) -> World:
    """A gang's life through these events, then quiet: what was cut off heals or is replaced."""
    world = World(gang=gang, seed=seed, linked=linked)
    for pause, what, rank in events:
        world.run(pause)
        getattr(world, what)(rank % gang.pods)
    return world


@LINKED
@GANGS
@settings(max_examples=examples(200), deadline=None)
@given(st.data(), st.integers(0, 2**32), st.lists(EVENTS, max_size=12))
def test_no_two_rounds_ever_run_at_once_and_no_rank_is_held_twice(
    linked: Any, gangs: Any, data: st.DataObject, seed: int, events: list[tuple[float, str, int]]
) -> None:
    live(data.draw(gangs), seed, events, linked=linked).run(20.0)


@settings(max_examples=examples(200), deadline=None)
@given(
    st.integers(2, 3),
    st.integers(0, 2**32),
    st.floats(1.0, 5.0),
    st.sampled_from(["isolate", "silence"]),
    st.floats(0.1, 3.0),
)
def test_a_pod_that_is_made_anew_while_nobody_can_stop_the_one_before_never_trains_beside_it(
    nodes: int, seed: int, trained: float, how: str, pause: float
) -> None:
    world = World(gang=Membership(nodes=nodes), seed=seed, linked=True)
    world.run(trained)
    getattr(world, how)(1)
    world.run(pause)
    world.replace(1)
    world.run(12.0)


@settings(max_examples=examples(100), deadline=None)
@given(st.integers(2, 4), st.integers(0, 2**32), st.floats(2.0, 6.0), st.sampled_from(["break_gpu", "kill_pod"]))
def test_a_spare_waits_for_no_lease_of_a_pod_that_is_known_to_be_over(
    nodes: int, seed: int, trained: float, how: str
) -> None:
    world = World(gang=Membership(nodes=nodes, spares=1), seed=seed, linked=True, harsh=False)
    world.run(trained)
    getattr(world, how)(1)
    if how == "kill_pod":
        world.replace(1)
        world.current(1).begins_at = float("inf")  # type: ignore[union-attr] # its imports never end
    world.run(LIMITS.kill + 1.5)  # hello, order, kill, report; a lease would be 3 s
    assert world.members(world.rounds[-1])[1] == nodes


@settings(max_examples=examples(100), deadline=None)
@given(st.integers(2, 4), st.integers(0, 1), st.integers(0, 2**32), st.floats(2.0, 6.0), st.integers(0, 3))
def test_a_pod_that_is_asked_to_go_costs_no_step_and_the_others_stay(
    nodes: int, spares: int, seed: int, trained: float, rank: int
) -> None:
    world = World(gang=Membership(nodes=nodes, spares=spares), seed=seed, linked=True, harsh=False)
    world.run(trained)
    asked = world.current(rank % nodes)
    assert asked
    world.ask(asked.rank)
    world.run(3.0)
    assert asked.code == 86
    world.replace(asked.rank)
    world.run(LIMITS.lease + LIMITS.kill + 3.0)
    assert [pod for pod in world.pods if not pod.alive] == [asked]
    (end,) = world.ends
    assert (end.rank, end.replaced, world.kills) == (asked.rank, True, 0)


@settings(max_examples=examples(100), deadline=None)
@given(st.integers(2, 4), st.integers(0, 2**32), st.floats(2.0, 6.0), st.integers(1, 3), st.floats(0.0, 7.0))
def test_a_gang_trains_on_until_the_next_pod_is_ready_which_then_waits_for_no_lease(
    nodes: int, seed: int, trained: float, rank: int, ready: float
) -> None:
    world = World(gang=Membership(nodes=nodes), seed=seed, linked=True, harsh=False)
    world.run(trained)
    old = world.current(rank % nodes or 1)
    assert old
    world.surge(old.rank)
    new, step = world.pods[-1], world.step
    assert new.follows is old
    new.begins_at = world.now + ready
    world.run(ready)
    assert (old.alive, new.alive) == (True, True)
    assert world.step >= step + int(ready / 0.6) - 1
    while old.alive:
        world.tick()
    world.replace(old.rank)
    world.run(LIMITS.lease)  # hello and order; a lease and a kill would be 3 s
    assert world.rounds[-1] == Round(1, 2)
    assert [pod for pod in world.pods if not pod.alive] == [old]
    (end,) = world.ends
    assert (end.rank, end.replaced, world.kills) == (old.rank, True, 0)


@LINKED
@GANGS
@settings(max_examples=examples(80), deadline=None)
@given(st.data(), st.integers(0, 2**32), st.lists(EVENTS, max_size=6))
def test_once_all_is_well_the_gang_trains_again_at_its_full_size_or_has_left(
    linked: Any, gangs: Any, data: st.DataObject, seed: int, events: list[tuple[float, str, int]]
) -> None:
    gang = data.draw(gangs)
    world = live(gang, seed, events, linked=linked)
    world.harsh = False
    for rank in range(gang.pods):
        world.replace(rank)
        world.heal(rank)
    world.run(LIMITS.lease * 3 + LIMITS.kill + 2 * LIMITS.backoff + 3.0)
    if not gang.is_fixed:
        world.run(LIMITS.yielding + gang.patience + 3.0)
    leader = world.leader
    all_are_there = all(pod.alive for pod in world.pods if pod.there)
    if not all_are_there or 0 in leader.leader.missing(world.now):
        world.run(LIMITS.patience)  # some have left, or too many may follow a rank 0 whose end nobody saw
    if not leader.alive or leader.leader.order.wanted is Wanted.LEAVE:
        return
    before = world.step
    world.run(3.0)
    assert (world.step > before and (world.at_full_size or not all_are_there)) or not leader.alive


def test_a_gang_that_shrinks_goes_on_from_the_memory_of_those_that_are_left() -> None:
    played = []
    for seed in range(20):
        gang = Membership(nodes=4, least=1, patience=1.0, can_be_dealt=lambda _: True)
        world = World(gang=gang, seed=seed, linked=True, harsh=False, copied=1.0, torn=0.0)
        world.run(5.0)
        world.kill_pod(2)
        world.run(12.0)
        world.kill_pod(1)
        world.run(12.0)
        played.append(world.reshaped)
    assert played == [2] * 20


@GANGS
@settings(max_examples=examples(40), deadline=None)
@given(st.data(), st.integers(0, 2**32))
def test_rounds_that_finish_no_step_are_bounded(gangs: Any, data: st.DataObject, seed: int) -> None:
    gang = data.draw(gangs)
    world = World(gang=gang, seed=seed, steps=0)
    for _ in range(600):
        world.run(0.2)
        world.crash(seed % gang.nodes)
        if not world.leader.alive:
            break
    assert not world.leader.alive
    assert len(world.rounds) <= LIMITS.fruitless


@GANGS
@settings(max_examples=examples(40), deadline=None)
@given(st.data(), st.integers(0, 2**32))
def test_a_program_that_fails_again_without_a_step_waits_before_its_next_round(
    gangs: Any, data: st.DataObject, seed: int
) -> None:
    gang = data.draw(gangs)
    world = World(gang=gang, seed=seed, steps=0, harsh=False)
    began: list[float] = []
    while world.leader.alive:
        world.run(0.2)
        world.crash(0)
        if world.leader.leader.order.wanted is Wanted.TRAIN and len(world.rounds) == len(began):
            began.append(world.now)
    assert began[1] - began[0] < LIMITS.backoff <= began[2] - began[1]
