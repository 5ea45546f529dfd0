"""The ring of a gang that has spares: it goes by places, whichever pod has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from keeping import CONTENT, content, keep
from rings import Rings

from oarlock_local.patience import eventually
from oarlock_trainer.agent.ring import restore
from oarlock_trainer.agent.ring import ring as module

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def three(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rings:
    """Rings nodes and a spare."""
    monkeypatch.setattr(module, "_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(restore, "_LOOK_SECONDS", 0.01)
    return Rings(tmp_path, spares=1)


def train_and_lose_pod_1(gang: Rings) -> None:
    """Step 7 is on both nodes, each with its copy of the other's, when pod 1 is lost and round 1 ends."""
    for node in (0, 1):
        gang.rings[node].begin(1, None)
        keep(gang.folders[node], 7, rank=node, content=CONTENT + bytes([node]))
    for node in (0, 1):
        eventually(lambda: gang.held(node) == {7: (0, 1)}, "the copies")  # noqa: B023
    gang.rings[0].stop()
    gang.rings[1].stop()


def test_a_spare_that_takes_a_place_copies_that_places_part_and_then_what_the_place_before_has(three: Rings) -> None:
    train_and_lose_pod_1(three)
    for pod in (2, 0):
        three.rings[pod].begin(2, 7, (0, 2))
    eventually(lambda: three.rings[2].ready, "ready")
    assert content(three.folders[2], 7, rank=1) == CONTENT + b"\x01"
    eventually(lambda: three.held(2) == {7: (0, 1)}, "the copy of place 0")
    keep(three.folders[2], 8, rank=1, slot=1, round_=2)
    eventually(lambda: three.held(0).get(8) == (1,), "what the spare's ranks have lies on pod 0")


def test_a_member_whose_part_nobody_has_is_ready_without(three: Rings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restore, "_REACH_SECONDS", 0.0)
    train_and_lose_pod_1(three)
    for pod in (0, 2):
        three.rings[pod].begin(2, 6, (0, 2))
    eventually(lambda: three.rings[2].ready, "ready")
    assert three.held(2) == {}


def test_a_part_that_is_under_way_is_wanted_no_more_once_the_round_is_over(three: Rings) -> None:
    three.rings[2].begin(2, 7, (0, 2))
    assert not three.rings[2].ready
    three.rings[2].stop()
    eventually(lambda: three.rings[2].ready, "ready")


def test_a_pod_with_another_place_than_before_keeps_nothing_of_other_places(three: Rings) -> None:
    for rank in (0, 1, 2):
        keep(three.folders[2], 7, rank=rank)
    three.rings[2].begin(2, 7, (0, 2))
    assert three.held(2) == {7: (0, 1)}


def test_a_pod_that_a_round_has_begun_without_keeps_nothing_and_hands_out_nothing(three: Rings) -> None:
    train_and_lose_pod_1(three)
    three.rings[1].forget()
    assert three.held(1) == {}
    assert list(three.folders[1].parent.iterdir()) == []
    assert three.rings[1].server.round == 0


def test_a_new_pod_gets_back_its_places_part_from_whichever_pod_has_it(three: Rings) -> None:
    keep(three.folders[0], 7, rank=1)
    three.rings[0].server.round = 1
    again = three.ring(1, incarnation=2)
    eventually(lambda: again.ready, "ready")
    assert three.held(1) == {7: (1,)}
