"""Rounds with other members, in words: a spare took a place, or the gang went on with fewer nodes or with more."""

from __future__ import annotations

import pytest

from oarlock.explain.attempts import last_trouble
from oarlock.explain.rounds import rounds, went_on
from oarlock.story import Attempt


def row(number: int, rung: str, **known: object) -> dict[str, object]:
    return {
        "attempt": 1,
        "round": number,
        "rung": rung,
        "rank": 1,
        "resumedFromStep": 15,
        "endedTime": f"2026-01-01T00:00:0{number}Z",
        **known,
    }


@pytest.mark.parametrize(
    ("rung", "nodes", "words"),
    [
        ("TakeSpare", None, "a spare took its place, and all ranks started from step 15"),
        ("Shrink", 2, "ranks started without its pod on 2 nodes from step 15"),
        ("Grow", None, "all ranks started on more nodes from step 15"),
        ("Grow", 3, "all ranks started on 3 nodes from step 15"),
        ("ReplacePod", None, "its pod was made anew, and all ranks started from step 15"),
        ("RestartRanks", None, "ranks started anew in their pods from step 15"),
    ],
)
def test_what_followed_a_round_is_told_by_its_rung(rung: str, nodes: int | None, words: str) -> None:
    (one,) = rounds([row(1, rung, nodeCount=nodes)], [], attempt=1, where={}, job="flux")
    assert went_on(one) == words


@pytest.mark.parametrize(
    ("rung", "action"),
    [
        ("TakeSpare", "a spare took its place"),
        ("Shrink", "the others went on without its pod"),
        ("ReplacePod", "its pod was made anew"),
        ("RestartRanks", "ranks started again in their pods"),
    ],
)
def test_what_was_done_about_a_rounds_fault_is_told_by_its_rung(rung: str, action: str) -> None:
    (one,) = rounds([row(1, rung)], [], attempt=1, where={}, job="flux")
    assert one.fault.action == action


def test_a_gang_that_took_more_nodes_had_no_fault_since_the_one_before() -> None:
    booked = [row(1, "Shrink", reason="NodeLost", message="node n2 is lost"), row(2, "Grow", reason="MoreNodes")]
    found = rounds(booked, [], attempt=1, where={}, job="flux")
    trouble = last_trouble([Attempt(number=1, rounds=found)])
    assert trouble is not None
    assert trouble.message == "node n2 is lost"
