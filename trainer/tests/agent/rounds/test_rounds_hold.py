"""What must never happen, whatever befalls members, leader and network: found by playing gangs with any such course."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rounds_world import LIMITS, World

from oarlock_trainer.agent.rounds.model import Wanted

pytestmark = pytest.mark.filterwarnings("ignore::hypothesis.errors.NonInteractiveExampleWarning")

EVENTS = st.tuples(
    st.floats(0.1, 8.0),
    st.sampled_from(["crash", "kill_pod", "isolate", "silence", "heal", "replace"]),
    st.integers(0, 3),
)


def live(nodes: int, seed: int, events: list[tuple[float, str, int]], *, linked: bool) -> World:
    """A gang's life through these events, then quiet: what was cut off heals or is replaced."""
    world = World(nodes=nodes, seed=seed, linked=linked)
    for pause, what, rank in events:
        world.run(pause)
        getattr(world, what)(rank % nodes)
    return world


LINKED = pytest.mark.parametrize("linked", [False, True], ids=["alone", "over a link"])


@LINKED
@settings(max_examples=150, deadline=None)
@given(st.integers(1, 4), st.integers(0, 2**32), st.lists(EVENTS, max_size=12))
def test_no_two_rounds_ever_run_at_once_and_no_rank_is_held_twice(
    linked: Any, nodes: int, seed: int, events: list[tuple[float, str, int]]
) -> None:
    live(nodes, seed, events, linked=linked).run(20.0)


@LINKED
@settings(max_examples=80, deadline=None)
@given(st.integers(1, 4), st.integers(0, 2**32), st.lists(EVENTS, max_size=6))
def test_once_all_is_well_the_gang_trains_again_or_has_left(
    linked: Any, nodes: int, seed: int, events: list[tuple[float, str, int]]
) -> None:
    world = live(nodes, seed, events, linked=linked)
    world.harsh = False
    for rank in range(nodes):
        world.replace(rank)
        world.heal(rank)
    world.run(LIMITS.lease * 3 + LIMITS.kill + 3.0)
    leader = world.leader
    if not leader.alive or leader.leader.order.wanted is Wanted.LEAVE:
        return
    before = world.step
    world.run(3.0)
    assert world.step > before or not leader.alive


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 4), st.integers(0, 2**32))
def test_rounds_that_finish_no_step_are_bounded(nodes: int, seed: int) -> None:
    world = World(nodes=nodes, seed=seed, steps=0)
    for _ in range(600):
        world.run(0.2)
        world.crash(seed % nodes)
        if not world.leader.alive:
            break
    assert not world.leader.alive
    assert len(world.rounds) <= LIMITS.fruitless
