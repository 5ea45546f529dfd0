"""Nodes: what their objects say, and what is remembered of those in trouble."""

from __future__ import annotations

from datetime import datetime

import pytest
from jobs import START
from memory_api import Json
from raw_nodes import node

from oarlock_operator.nodes.troubled import MOST_GONE, TroubledNodes, read_node


@pytest.mark.parametrize(
    ("raw", "ready", "unreachable"),
    [
        (node(), True, False),
        (node(ready="False"), False, False),
        (node(ready="Unknown"), False, True),
        (node(tainted=True), True, False),
        ({"metadata": {"name": "n1"}}, False, False),
    ],
    ids=["ready", "not-ready", "unknown", "ready-and-still-tainted", "says-nothing-yet"],
)
def test_a_node_is_ready_not_ready_or_unreachable(raw: Json, ready: bool, unreachable: bool) -> None:  # noqa: FBT001
    seen = read_node(raw)
    assert (seen.ready, seen.unreachable) == (ready, unreachable)


@pytest.mark.parametrize(
    ("written", "seen"),
    [
        ("2026-01-01T12:00:00Z", START),
        ("2026-01-01T13:00:00+01:00", START),
        ("2026-01-01T12:00:00", None),
        ("yes", None),
        ("", None),
    ],
)
def test_what_a_person_writes_to_give_a_node_back_counts_if_it_is_a_time_with_its_zone(
    written: str, seen: datetime | None
) -> None:
    raw = node()
    raw["metadata"]["annotations"] = {"oarlock.dev/given-back": written}
    assert read_node(raw).given_back == seen


def test_every_change_of_trouble_is_news_and_a_heartbeat_is_none() -> None:
    nodes = TroubledNodes()
    assert not nodes.note(node(), deleted=False)
    cordoned = node()
    cordoned["spec"]["unschedulable"] = True
    for change in (cordoned, node(ready="False"), node(ready="Unknown")):
        assert nodes.note(change, deleted=False)
        assert not nodes.note(change, deleted=False)
    assert nodes.among(["n1", "n2"]) == {"n1"}
    assert nodes.note(node(), deleted=False)
    assert nodes.among(["n1"]) == set()
    assert nodes.note(node(), deleted=True)


def test_of_nodes_that_come_and_go_for_ever_only_the_last_ones_are_remembered_and_no_living_one_is_forgotten() -> None:
    nodes = TroubledNodes()
    nodes.note(node("sick", ready="False"), deleted=False)
    names = [f"n{i}" for i in range(MOST_GONE + 10)]
    for name in names:
        nodes.note(node(name), deleted=True)
    assert nodes.among([*names, "sick"]) == {*names[10:], "sick"}
