"""Who has which place of the next round: each keeps its own, and what lacks is filled, or left out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oarlock_trainer.agent.rounds.membership import MOST_RUNS, Membership, runs

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = pytest.mark.filterwarnings("ignore::hypothesis.errors.NonInteractiveExampleWarning")

FIXED = Membership(nodes=3)
SPARES = Membership(nodes=3, spares=2)
ELASTIC = Membership(nodes=4, least=2, can_be_dealt=lambda size: size != 3)


@pytest.mark.parametrize(
    ("gang", "there", "before", "members"),
    [
        (FIXED, {0, 1, 2}, (0, 1, 2), (0, 1, 2)),
        (FIXED, {0, 2}, (0, 1, 2), ()),
        (SPARES, {0, 1, 2, 3, 4}, (0, 1, 2), (0, 1, 2)),
        (SPARES, {0, 2, 3, 4}, (0, 1, 2), (0, 3, 2)),
        (SPARES, {0, 3, 4}, (0, 1, 2), (0, 3, 4)),
        (SPARES, {0, 1, 2, 3, 4}, (0, 3, 2), (0, 3, 2)),
        (SPARES, {0, 1, 2, 4}, (0, 3, 2), (0, 1, 2)),
        (SPARES, {0, 1, 4}, (0, 3, 2), (0, 1, 4)),
        (SPARES, {0, 4}, (0, 1, 2), ()),
        (ELASTIC, {0, 1, 2, 3}, (0, 1, 2, 3), (0, 1, 2, 3)),
        (ELASTIC, {0, 2, 3}, (0, 1, 2, 3), (0, 2)),
        (ELASTIC, {0, 2, 3}, (0, 3), (0, 3)),
        (ELASTIC, {0, 1, 2}, (0, 3), (0, 1)),
        (ELASTIC, {0, 1, 2, 3}, (0, 3), (0, 1, 2, 3)),
        (ELASTIC, {0}, (0, 3), ()),
        (ELASTIC, {0, 3}, (), (0, 3)),
    ],
    ids=[
        "all are there",
        "one lacks",
        "all and spares",
        "a spare for one",
        "two spares for two",
        "a spare keeps its place though its home pod is back",
        "the home pod for a lost spare",
        "the home pod and a spare",
        "too few with spares",
        "all of an elastic gang",
        "three that cannot be dealt",
        "each keeps its place in a smaller round",
        "the home pod in a smaller round",
        "grown to its own places",
        "fewer than the least",
        "after a leader that nobody knows the places of",
    ],
)
def test_the_places_of_the_next_round(
    gang: Membership, there: set[int], before: Sequence[int], members: tuple[int, ...]
) -> None:
    assert gang.chosen(there, before) == members


@given(st.data())
def test_places_are_held_once_by_pods_that_are_there_and_each_keeps_its_own(data: st.DataObject) -> None:
    nodes, spares = data.draw(st.integers(1, 8)), data.draw(st.integers(0, 4))
    sizes = data.draw(st.sets(st.integers(1, 8)))
    gang = Membership(
        nodes=nodes, spares=spares, least=data.draw(st.integers(0, nodes)), can_be_dealt=lambda size: size in sizes
    )
    before: tuple[int, ...] = ()
    for _ in range(data.draw(st.integers(1, 6))):
        there = {0} | data.draw(st.sets(st.integers(0, gang.pods - 1)))
        members = gang.chosen(there, before)
        assert len(members) == gang.largest(len(there))
        if not members:
            assert len(there) < nodes
            continue
        assert members[0] == 0
        assert set(members) <= there
        assert len(set(members)) == len(members)
        assert len(members) == nodes or (len(members) in sizes and gang.elastic and len(members) >= gang.least)
        if len(before) == len(members):
            assert all(was == now for was, now in zip(before, members, strict=True) if was in there)
        before = members


def test_pods_go_back_to_their_own_places_before_their_order_is_too_long_to_tell() -> None:
    gang = Membership(nodes=200, spares=30)
    before = tuple(200 + rank // 4 if rank % 4 == 1 and rank < 92 else rank for rank in range(200))
    there = set(range(230))
    assert len(runs(before)) == 47
    assert gang.chosen(there, before) == before
    members = gang.chosen(there - {93}, before)
    assert members == (*range(93), 200, *range(94, 200))
    assert len(runs(members)) <= MOST_RUNS
