"""What the leader orders of rounds, as frames of the link."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from oarlock_trainer.agent.link.protocol import MAX_LINE, decode, encode
from oarlock_trainer.agent.link.round_frames import Ordered
from oarlock_trainer.agent.rounds.membership import MOST_RUNS
from oarlock_trainer.agent.rounds.model import Order, Place, Round, Wanted

ORDER = Order(Round(1, 2), Wanted.TRAIN, step=40, why="rank 1 was killed")
ORDERED = Ordered(ORDER, yours=True, heard=7)


def places(*ranks: int) -> tuple[Place, ...]:
    return tuple(Place(rank, "") for rank in ranks)


@pytest.mark.parametrize("wanted", list(Wanted))
@pytest.mark.parametrize("members", [(), places(0, 4, 2, 3), places(0, 1)])
def test_an_order_is_read_as_it_was(wanted: Wanted, members: tuple[Place, ...]) -> None:
    ordered = replace(ORDERED, order=replace(ORDER, wanted=wanted, members=members))
    assert decode(encode(ordered).rstrip(b"\n")) == ordered


def test_an_order_of_a_gang_in_its_own_order_is_to_the_byte_what_older_agents_say() -> None:
    assert encode(ORDERED) == (
        b'{"kind":"order","round":[1,2],"wanted":0,"yours":true,"heard":7,"step":40,"code":0,"why":"rank 1 was killed"}\n'
    )
    numbers = [json.loads(encode(replace(ORDERED, order=replace(ORDER, wanted=one))))["wanted"] for one in Wanted]
    assert dict(zip(Wanted, numbers, strict=True)) == {
        Wanted.TRAIN: 0,
        Wanted.STAND_BY: 1,
        Wanted.LEAVE: 2,
        Wanted.YIELD: 3,
    }


def test_an_order_with_as_many_runs_as_there_may_be_fits_into_a_line() -> None:
    ranks = [rank for run in range(MOST_RUNS) for rank in range(10**6 + 1000 * run, 10**6 + 1000 * run + 85)]
    ordered = replace(ORDERED, order=replace(ORDER, members=places(*ranks), why="\U0001f6a8" * 999))
    line = encode(ordered)
    assert len(line) <= MAX_LINE
    read = decode(line.rstrip(b"\n"))
    assert isinstance(read, Ordered)
    assert read.order.members == places(*ranks)


@pytest.mark.parametrize(
    "members",
    ["0,1", [0, 1], [[0, 2], [1, 1]], [[0, -1]], [[0, 10**9]], [[-1, 2]], [[0]], [[0, 1]] * (MOST_RUNS + 1)],
)
def test_an_order_whose_members_can_be_none_is_no_order(members: object) -> None:
    raw = json.loads(encode(ORDERED))
    assert decode(json.dumps(raw | {"members": members}).encode()) is None


def test_a_member_knows_who_has_which_place() -> None:
    assert ORDERED.to(1, "one", nodes=2).members == (Place(0, ""), Place(1, "one"))
    other = replace(ORDERED, order=replace(ORDER, members=places(0, 2)))
    assert other.to(2, "two", nodes=2).members == (Place(0, ""), Place(2, "two"))
    assert replace(other, yours=False).to(1, "one", nodes=2).members == places(0, 2)
    assert replace(ORDERED, yours=False).to(2, "two", nodes=2).members == ()
