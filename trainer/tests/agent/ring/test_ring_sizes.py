"""The ring where a round has another size than the one before: all parts on each node, until a newer state is copied."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from keeping import CONTENT, content, keep
from rings import Rings

from oarlock_local.patience import eventually
from oarlock_trainer.agent.ring import parts_server, peer, pull, restore
from oarlock_trainer.agent.ring import ring as module
from oarlock_trainer.checkpoint.memory.held import state_name, steps_of

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def shrinking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rings:
    """Three nodes, of which 2 is lost: step 7 is on all, each with its copy of the node before it. Parts have many pieces."""
    for server_or_client in (parts_server, peer):
        monkeypatch.setattr(server_or_client, "PIECE", len(CONTENT) // 7)
    monkeypatch.setattr(module, "_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(restore, "_LOOK_SECONDS", 0.01)
    gang = Rings(tmp_path, nodes=3)
    for node in range(3):
        gang.rings[node].begin(1, None)
        keep(gang.folders[node], 7, rank=node, content=CONTENT + bytes([node]), world=3)
    for node in range(3):
        eventually(lambda: gang.held(node) == {7: tuple(sorted({node, (node - 1) % 3}))}, "the copies")  # noqa: B023
        gang.rings[node].stop()
    return gang


def shrink(gang: Rings) -> None:
    for pod in (0, 1):
        gang.rings[pod].begin(2, 7, (0, 1), made_by=3)
    for pod in (0, 1):
        eventually(lambda: gang.rings[pod].ready, "ready")  # noqa: B023


def test_where_a_round_has_fewer_places_each_node_copies_all_parts_that_it_lacks(shrinking: Rings) -> None:
    shrink(shrinking)
    for pod in (0, 1):
        assert shrinking.held(pod) == {7: (0, 1, 2)}
        assert [content(shrinking.folders[pod], 7, rank=rank)[-1] for rank in range(3)] == [0, 1, 2]


def test_where_a_round_has_another_size_what_counts_no_longer_gives_its_room_to_what_is_copied(
    shrinking: Rings,
) -> None:
    for node in (0, 1):
        for rank in (node, (node - 1) % 3):
            (shrinking.folders[node] / state_name(rank, 1)).write_bytes(CONTENT)
    shrink(shrinking)
    for pod in (0, 1):
        assert len(list(shrinking.folders[pod].glob("*.state"))) == 3


def test_parts_of_other_places_stay_until_a_newer_state_of_this_round_is_copied(shrinking: Rings) -> None:
    shrink(shrinking)
    keep(shrinking.folders[0], 8, rank=0, slot=1, round_=2, world=2)
    eventually(lambda: shrinking.held(1).get(8) == (0,), "the copy on pod 1")
    assert shrinking.held(1)[7] == (0, 1, 2), "pod 0 has no copy of pod 1's yet"
    assert [content(shrinking.folders[1], 7, rank=rank)[-1] for rank in range(3)] == [0, 1, 2]
    keep(shrinking.folders[1], 8, rank=1, slot=1, round_=2, world=2)
    for pod in (0, 1):
        eventually(lambda: shrinking.held(pod).get(7) == (0, 1), "that the third part is gone")  # noqa: B023
        assert shrinking.held(pod)[8] == (0, 1)
        assert [content(shrinking.folders[pod], 7, rank=rank)[-1] for rank in (0, 1)] == [0, 1]
    assert steps_of(shrinking.folders[0], 2) == []


def test_where_a_part_cannot_be_had_none_is_asked_for_after_it_and_what_came_is_gone(
    shrinking: Rings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restore, "_REACH_SECONDS", 0.0)
    for node in range(3):
        for path in shrinking.folders[node].glob("*-rank-00001.json"):
            path.unlink()
    shrink(shrinking)
    assert shrinking.held(0) == {7: (0,)}, "it had place 2's"
    assert shrinking.held(1) == {7: (0,)}, "it got place 2's"


def test_a_state_that_somebody_has_removed_ends_no_round(shrinking: Rings) -> None:
    (shrinking.folders[0] / state_name(0, 0)).unlink()
    shrinking.rings[0].begin(2, 7, (0, 1), made_by=3)
    eventually(lambda: shrinking.rings[0].ready, "ready")


def test_where_a_part_has_not_come_in_time_other_places_parts_are_gone(
    shrinking: Rings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PULL_SECONDS", 0.0)
    shrinking.rings[0].begin(2, 7, (0, 1), made_by=3)
    eventually(lambda: shrinking.rings[0].ready, "ready")
    assert not steps_of(shrinking.folders[0], 2)


def test_where_all_parts_have_no_room_nothing_is_copied(
    shrinking: Rings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pull.cgroup, "free_memory", lambda: len(CONTENT) // 2)
    shrink(shrinking)
    assert "are free: raise spec.pod.sharedMemory" in caplog.text
    assert shrinking.held(0) == {7: (0,)}


def test_a_node_that_had_no_room_for_a_copy_still_forgets_other_places_parts(
    shrinking: Rings, monkeypatch: pytest.MonkeyPatch
) -> None:
    shrink(shrinking)
    monkeypatch.setattr(shrinking.rings[0], "_full_epoch", shrinking.rings[0]._copier.epoch)
    keep(shrinking.folders[0], 8, rank=0, slot=1, round_=2, world=2)
    keep(shrinking.folders[0], 8, rank=1, slot=1, round_=2, world=2)
    eventually(lambda: shrinking.held(0).get(7) == (0, 1), "that the third part is gone")


def test_a_node_that_trains_alone_keeps_its_own_state_and_no_copy(shrinking: Rings) -> None:
    shrink(shrinking)
    shrinking.rings[0].stop()
    shrinking.rings[0].begin(3, 7, (0,), made_by=3)
    assert shrinking.rings[0].ready
    assert shrinking.held(0) == {7: (0, 1, 2)}
    keep(shrinking.folders[0], 8, rank=0, slot=1, round_=3, world=1)
    eventually(lambda: shrinking.held(0) == {8: (0,), 7: (0,)}, "that other parts are gone")


def test_a_gang_that_is_whole_again_has_the_parts_of_fewer_places_on_each_node(shrinking: Rings) -> None:
    shrinking.rings[0].begin(2, None, (0,))
    keep(shrinking.folders[0], 9, rank=0, content=CONTENT + b"alone", round_=2, world=1)
    shrinking.rings[0].stop()
    for pod in range(3):
        shrinking.rings[pod].begin(3, 9, (0, 1, 2), made_by=1)
    for pod in range(3):
        eventually(lambda: shrinking.rings[pod].ready, "ready")  # noqa: B023
        assert content(shrinking.folders[pod], 9, rank=0) == CONTENT + b"alone"
        assert shrinking.held(pod) == {9: (0,)}


def test_where_ranks_went_on_from_elsewhere_parts_of_other_places_are_gone(shrinking: Rings) -> None:
    shrink(shrinking)
    shrinking.rings[0].went_on_from(5)
    assert shrinking.held(0) == {7: (0,)}, "its own, which its ranks forget"
