"""Rings agents' parts of the ring: what each copies from the other, what it forgets, and what comes back to a lost pod."""

from __future__ import annotations

import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from agent_process import free_port
from keeping import CONTENT, content, keep
from rings import POD, Rings, assigned

from oarlock_api.contract.rounds import InPlace
from oarlock_local.patience import eventually
from oarlock_trainer.agent.ring import restore
from oarlock_trainer.agent.ring import ring as module
from oarlock_trainer.checkpoint.memory.held import Held, held, steps_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rings:
    monkeypatch.setattr(module, "_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(restore, "_LOOK_SECONDS", 0.01)
    return Rings(tmp_path)


def test_while_ranks_train_the_next_node_has_the_newest_two_steps_of_this_one(two: Rings) -> None:
    for ring in two.rings:
        ring.begin(1, None)
    for step in (1, 2, 3):
        keep(two.folders[0], step, slot=step % 2, content=CONTENT + bytes([step]))
        eventually(lambda: step in steps_of(two.folders[1], 0), f"step {step}")  # noqa: B023
    assert {*steps_of(two.folders[1], 0)} == {2, 3}
    assert content(two.folders[1], 3) == CONTENT + b"\x03"
    assert len(list(two.folders[1].glob("*.state"))) == 2


def test_a_step_that_is_there_on_this_node_is_looked_for_on_the_one_before_without_waiting_for_the_next_look(
    two: Rings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LOOK_SECONDS", 3600.0)
    for ring in two.rings:
        ring.begin(1, None)
    for step in (1, 2, 3):
        for node, folder in enumerate(two.folders):
            keep(folder, step, rank=node, slot=step % 2)
        for node, folder in enumerate(two.folders):
            eventually(lambda: step in steps_of(folder, 1 - node), f"step {step}")  # noqa: B023


def test_of_a_node_with_several_ranks_a_part_that_is_there_is_not_copied_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module.Ring, "_follow", lambda _: None)  # nothing is copied but by this test
    two = Rings(tmp_path, gpus_per_node=2)
    for ring in two.rings:
        ring.begin(1, None)
    for rank in (0, 1):
        keep(two.folders[0], 7, rank=rank)
    peer = two.rings[1]._before
    asked: list[str] = []
    piece = peer.piece

    def once_broken(name: str, offset: int) -> bytes:
        asked.append(name)
        if len(asked) == 2:
            raise module.PeerError("the network broke")
        return piece(name, offset)

    monkeypatch.setattr(peer, "piece", once_broken)
    epoch = two.rings[1]._copier.epoch
    with pytest.raises(module.PeerError, match="broke"):
        two.rings[1]._copy_newest(epoch)
    two.rings[1]._copy_newest(epoch)
    assert asked == ["rank-00000-0.state", "rank-00001-0.state", "rank-00001-0.state"]
    assert held(two.folders[1], ranks_per_node=2) == (Held(7, 1, (0,)),)


def test_nothing_comes_over_from_a_node_that_is_in_another_round(two: Rings) -> None:
    two.rings[0].begin(1, None)
    keep(two.folders[0], 7)
    two.rings[1].server.round = 2
    two.rings[1]._copy_newest(0)
    assert two.held(1) == {}
    two.rings[1].server.round = 1
    two.rings[1]._files = {0: module.RankFiles(two.folders[1], 0)}
    two.rings[1]._files[0].claim(keep=None)
    two.rings[1]._copy_newest(0)
    assert two.held(1) == {7: (0,)}


def test_what_ranks_do_not_go_on_from_counts_nowhere_neither_own_nor_the_others(two: Rings) -> None:
    for rank in (0, 1):
        keep(two.folders[1], 3, rank=rank, slot=0)
        keep(two.folders[1], 5, rank=rank, slot=1)
    two.rings[1].begin(2, 3)
    assert two.held(1) == {3: (0, 1)}
    two.rings[1].begin(3, None)
    assert two.held(1) == {}


def test_where_ranks_went_on_from_elsewhere_a_copy_of_the_same_step_of_an_earlier_round_counts_no_longer(
    two: Rings,
) -> None:
    for ring in two.rings:
        ring.begin(1, None)
    keep(two.folders[0], 7)
    eventually(lambda: 7 in steps_of(two.folders[1], 0), "step 7")
    for ring in two.rings:
        ring.stop()
        ring.begin(2, 7)
        ring.went_on_from(None)  # not told yet
    assert two.held(1) == {7: (0,)}
    two.rings[1].went_on_from(5)
    assert two.held(1) == {}
    with pytest.raises(module.PeerError, match="round 1"):
        two.rings[1]._copy_newest(two.rings[1]._copier.epoch)
    keep(two.folders[0], 7, slot=1, content=b"again", round_=2)
    eventually(lambda: 7 in steps_of(two.folders[1], 0), "step 7 of round 2")
    assert content(two.folders[1], 7) == b"again"


@pytest.mark.deep
def test_the_step_that_ranks_went_on_from_is_copied_of_whichever_round_it_is(two: Rings) -> None:
    keep(two.folders[0], 7)
    for ring in two.rings:
        ring.begin(2, 7)
        ring.went_on_from(7)
    eventually(lambda: 7 in steps_of(two.folders[1], 0), "step 7")


def test_nothing_comes_back_from_a_node_whose_memory_is_of_no_round(two: Rings) -> None:
    keep(two.folders[1], 7)
    again = two.ring(0, incarnation=2)
    eventually(lambda: again.ready, "ready")
    assert two.held(0) == {}
    two.rings[1].server.round = 1
    again = two.ring(0, incarnation=2)
    eventually(lambda: again.ready, "ready")
    assert two.held(0) == {7: (0,)}


def test_once_no_rank_is_left_nothing_changes_any_more(two: Rings) -> None:
    two.rings[1].begin(1, None)
    epoch = two.rings[1]._copier.epoch
    two.rings[1].stop()
    two.rings[0].server.round = 1
    keep(two.folders[0], 7)
    with pytest.raises(module.StoppedError):
        two.rings[1]._copy_newest(epoch)
    assert two.held(1) == {}


class Gap(threading.Event):
    """Is waited for once: something happens between that and what its waiter does next."""

    def __init__(self, happens: Callable[[], object]) -> None:
        super().__init__()
        self.set()
        self.happens: Callable[[], object] | None = happens

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is None
        happens, self.happens = self.happens, None
        if happens:
            happens()
        return happens is not None


def follow(ring: module.Ring) -> None:
    """In a thread that ends with it: who follows steps back behind all else, for good."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(ring._follow).result()


def test_a_stop_between_two_looks_of_the_thread_that_copies_is_one(two: Rings, monkeypatch: pytest.MonkeyPatch) -> None:
    ring, copied = two.rings[1], []
    ring._wanted = Gap(ring.stop)
    monkeypatch.setattr(ring, "_copy_newest", copied.append)
    follow(ring)
    assert copied == []


def test_a_copy_that_has_no_room_does_not_end_those_of_the_next_round(
    two: Rings, monkeypatch: pytest.MonkeyPatch
) -> None:
    ring = two.rings[1]
    ring._wanted = Gap(lambda: None)

    def no_room(_: int) -> None:
        ring.stop()
        ring.begin(2, None)
        raise module.NoRoomError

    monkeypatch.setattr(ring, "_copy_newest", no_room)
    follow(ring)
    assert ring._wanted.is_set()


def test_a_pod_that_was_made_anew_gets_back_what_its_ranks_had(two: Rings) -> None:
    for ring in two.rings:
        ring.begin(1, None)
    keep(two.folders[0], 1, slot=0)
    eventually(lambda: 1 in steps_of(two.folders[1], 0), "step 1")
    keep(two.folders[0], 2, slot=1, content=b"two")
    eventually(lambda: 2 in steps_of(two.folders[1], 0), "step 2")
    for ring in two.rings:
        ring.stop()
    shutil.rmtree(two.folders[0])
    again = two.ring(0, incarnation=2)
    eventually(lambda: again.ready, "ready")
    assert two.held(0) == {2: (0,), 1: (0,)}
    assert (content(two.folders[0], 2), content(two.folders[0], 1)) == (b"two", CONTENT)
    again.begin(2, 2)
    assert two.held(0) == {2: (0,)}


def test_what_comes_back_to_a_new_pod_is_asked_for_again_where_a_request_failed(
    two: Rings, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in (1, 2):
        keep(two.folders[1], step, slot=step % 2, content=CONTENT + bytes([step]))
    two.rings[1].server.round = 1
    piece, asked = module.Peer.piece, []

    def broken_at_times(self: Any, name: str, offset: int) -> bytes:
        asked.append(name)
        if len(asked) in {1, 3}:
            raise module.PeerError("the network broke")
        return piece(self, name, offset)

    monkeypatch.setattr(module.Peer, "piece", broken_at_times)
    again = two.ring(0, incarnation=2)
    eventually(lambda: again.ready, "ready")
    assert two.held(0) == {2: (0,), 1: (0,)}
    assert len(asked) == 4


def test_a_request_that_fails_again_and_again_is_given_up_and_the_log_says_why(
    two: Rings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    keep(two.folders[1], 1)
    two.rings[1].server.round = 1
    monkeypatch.setattr(restore, "_REACH_SECONDS", 0.1)
    asked: list[str] = []

    def broken(_: Any, name: str, offset: int) -> bytes:
        asked.append(f"{name} {offset}")
        raise module.PeerError("the network broke")

    monkeypatch.setattr(module.Peer, "piece", broken)
    again = two.ring(0, incarnation=2)
    eventually(lambda: again.ready, "ready")
    assert two.held(0) == {}
    assert len(asked) > 1
    assert "not all of this pod's state came back from pod 1: the network broke" in caplog.text


def test_a_pod_whose_part_nobody_has_is_ready_without(two: Rings, monkeypatch: pytest.MonkeyPatch) -> None:
    again = two.ring(0, incarnation=2)
    eventually(lambda: again.ready, "ready")
    monkeypatch.setattr(restore, "_REACH_SECONDS", 0.0)
    two.ports[1] = free_port()  # nobody is there
    alone = two.ring(0, incarnation=2)
    eventually(lambda: alone.ready, "ready")
    assert two.held(0) == {}


def test_a_pod_of_the_first_incarnation_waits_for_nobody(two: Rings) -> None:
    assert two.rings[0].ready


@pytest.mark.parametrize(
    "change", ["nobody is replaced", "no key", "one node", "own command", "no rounds", "no memory"]
)
def test_there_is_no_ring_where_it_has_no_use_or_nobody_may_be_told(tmp_path: Path, change: str) -> None:
    assignment = assigned(0, [1, 2], tmp_path)
    job: Any = assignment.job
    assert assignment.keeps_copies
    if change == "nobody is replaced":
        assignment = replace(assignment, pod=replace(POD, replaces_pods=False))
    elif change == "no key":
        assignment = replace(assignment, key=None)
    elif change == "one node":
        job.nodes = 1
    elif change == "own command":
        job.custom = object()
    elif change == "no rounds":
        job.recovery.in_place = InPlace.NEVER
    else:
        job.recovery.memory.every_steps = "0"
    assert not assignment.keeps_copies
