"""Two agents' parts of the ring: what each copies from the other, what it forgets, and what comes back to a lost pod."""

from __future__ import annotations

import shutil
import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from agent_process import eventually, free_port
from keeping import CONTENT, KEY, OF, content, keep

from oarlock_api.contract.rounds import InPlace
from oarlock_trainer.agent.ring import parts_server, peer, pull, restore
from oarlock_trainer.agent.ring import ring as module
from oarlock_trainer.agent.ring.ring import Ring
from oarlock_trainer.agent.status.status_server import StatusServer
from oarlock_trainer.checkpoint.memory.held import Held, folder_of, held, state_name, steps_of
from oarlock_trainer.runtime.assignment import Assignment, Pod

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NONE: dict[str, Any] = {"custom": None, "elastic": None}
POD = Pod(rank=0, job="flux", attempt=1, pod_uid="", node="", replaces_pods=True)


def assigned(
    node: int,
    ports: list[int],
    home: Path,
    *,
    incarnation: int = 1,
    gpus_per_node: int = 0,
    nodes: int = 2,
    spares: int = 0,
) -> Assignment:
    memory = SimpleNamespace(every_steps="1")
    recovery = SimpleNamespace(in_place=InPlace.AUTO, memory=memory, standby_seconds=300)
    job: Any = SimpleNamespace(nodes=nodes, spares=spares, gpus_per_node=gpus_per_node, recovery=recovery, **NONE, **OF)
    return Assignment(
        pod=replace(POD, rank=node, incarnation=incarnation),
        job=job,
        master_address="",
        master_port=1,
        simulate_gpus=False,
        key=KEY,
        peers=tuple(("127.0.0.1", port) for port in ports),
        shared_memory=home / str(node),
    )


class Two:
    """Both agents' rings, and those of spares, each with a folder of its own."""

    def __init__(self, home: Path, *, gpus_per_node: int = 0, nodes: int = 2, spares: int = 0) -> None:
        self.home, self.gpus_per_node, self.nodes, self.spares = home, gpus_per_node, nodes, spares
        pods = range(nodes + spares)
        self.ports = [free_port() for _ in pods]
        self.folders = [folder_of(**OF, shared_memory=home / str(node)) for node in pods]
        for folder in self.folders:
            folder.parent.mkdir()
        self.rings = [self.ring(node) for node in pods]
        for node, ring in enumerate(self.rings):
            self.serve(node, ring)

    def ring(self, node: int, *, incarnation: int = 1) -> Ring:
        how: dict[str, int] = {"gpus_per_node": self.gpus_per_node, "nodes": self.nodes, "spares": self.spares}
        assignment = assigned(node, self.ports, self.home, incarnation=incarnation, **how)
        return Ring(assignment, self.folders[node], KEY)

    def serve(self, node: int, ring: Ring) -> None:
        status: Any = None
        StatusServer(port=self.ports[node], job="flux", status=lambda: status, alive=lambda: True, parts=ring.server)

    def held(self, node: int) -> dict[int, tuple[int, ...]]:
        return {step: places for step, _, places in held(self.folders[node], ranks_per_node=1)}


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Two:
    monkeypatch.setattr(module, "_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(restore, "_LOOK_SECONDS", 0.01)
    return Two(tmp_path)


def test_while_ranks_train_the_next_node_has_the_newest_two_steps_of_this_one(two: Two) -> None:
    for ring in two.rings:
        ring.begin(1, None)
    for step in (1, 2, 3):
        keep(two.folders[0], step, place=step % 2, content=CONTENT + bytes([step]))
        eventually(lambda: step in steps_of(two.folders[1], 0), f"step {step}")  # noqa: B023
    assert {*steps_of(two.folders[1], 0)} == {2, 3}
    assert content(two.folders[1], 3) == CONTENT + b"\x03"
    assert len(list(two.folders[1].glob("*.state"))) == 2


def test_a_step_that_is_there_on_this_node_is_looked_for_on_the_one_before_without_waiting_for_the_next_look(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LOOK_SECONDS", 3600.0)
    for ring in two.rings:
        ring.begin(1, None)
    for step in (1, 2, 3):
        for node, folder in enumerate(two.folders):
            keep(folder, step, rank=node, place=step % 2)
        for node, folder in enumerate(two.folders):
            eventually(lambda: step in steps_of(folder, 1 - node), f"step {step}")  # noqa: B023


def test_of_a_node_with_several_ranks_a_part_that_is_there_is_not_copied_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module.Ring, "_follow", lambda _: None)  # nothing is copied but by this test
    two = Two(tmp_path, gpus_per_node=2)
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


def test_nothing_comes_over_from_a_node_that_is_in_another_round(two: Two) -> None:
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


def test_what_ranks_do_not_go_on_from_counts_nowhere_neither_own_nor_the_others(two: Two) -> None:
    for rank in (0, 1):
        keep(two.folders[1], 3, rank=rank, place=0)
        keep(two.folders[1], 5, rank=rank, place=1)
    two.rings[1].begin(2, 3)
    assert two.held(1) == {3: (0, 1)}
    two.rings[1].begin(3, None)
    assert two.held(1) == {}


def test_where_ranks_went_on_from_elsewhere_a_copy_of_the_same_step_of_an_earlier_round_counts_no_longer(
    two: Two,
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
    keep(two.folders[0], 7, place=1, content=b"again", round_=2)
    eventually(lambda: 7 in steps_of(two.folders[1], 0), "step 7 of round 2")
    assert content(two.folders[1], 7) == b"again"


def test_the_step_that_ranks_went_on_from_is_copied_of_whichever_round_it_is(two: Two) -> None:
    keep(two.folders[0], 7)
    for ring in two.rings:
        ring.begin(2, 7)
        ring.went_on_from(7)
    eventually(lambda: 7 in steps_of(two.folders[1], 0), "step 7")


def test_nothing_comes_back_from_a_node_whose_memory_is_of_no_round(two: Two) -> None:
    keep(two.folders[1], 7)
    again = two.ring(0, incarnation=2)
    eventually(lambda: again.ready, "ready")
    assert two.held(0) == {}
    two.rings[1].server.round = 1
    again = two.ring(0, incarnation=2)
    eventually(lambda: again.ready, "ready")
    assert two.held(0) == {7: (0,)}


def test_once_no_rank_is_left_nothing_changes_any_more(two: Two) -> None:
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


def test_a_stop_between_two_looks_of_the_thread_that_copies_is_one(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    ring, copied = two.rings[1], []
    ring._wanted = Gap(ring.stop)
    monkeypatch.setattr(ring, "_copy_newest", copied.append)
    ring._follow()
    assert copied == []


def test_a_copy_that_has_no_room_does_not_end_those_of_the_next_round(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    ring = two.rings[1]
    ring._wanted = Gap(lambda: None)

    def no_room(_: int) -> None:
        ring.stop()
        ring.begin(2, None)
        raise module.NoRoomError

    monkeypatch.setattr(ring, "_copy_newest", no_room)
    ring._follow()
    assert ring._wanted.is_set()


def test_a_pod_that_was_made_anew_gets_back_what_its_ranks_had(two: Two) -> None:
    for ring in two.rings:
        ring.begin(1, None)
    keep(two.folders[0], 1, place=0)
    eventually(lambda: 1 in steps_of(two.folders[1], 0), "step 1")
    keep(two.folders[0], 2, place=1, content=b"two")
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
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in (1, 2):
        keep(two.folders[1], step, place=step % 2, content=CONTENT + bytes([step]))
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
    two: Two, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
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


def test_a_pod_whose_part_nobody_has_is_ready_without(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    again = two.ring(0, incarnation=2)
    eventually(lambda: again.ready, "ready")
    monkeypatch.setattr(restore, "_REACH_SECONDS", 0.0)
    two.ports[1] = free_port()  # nobody is there
    alone = two.ring(0, incarnation=2)
    eventually(lambda: alone.ready, "ready")
    assert two.held(0) == {}


def test_a_pod_of_the_first_incarnation_waits_for_nobody(two: Two) -> None:
    assert two.rings[0].ready


@pytest.fixture
def three(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Two:
    """Two nodes and a spare."""
    monkeypatch.setattr(module, "_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(restore, "_LOOK_SECONDS", 0.01)
    return Two(tmp_path, spares=1)


def train_and_lose_pod_1(gang: Two) -> None:
    """Step 7 is on both nodes, each with its copy of the other's, when pod 1 is lost and round 1 ends."""
    for node in (0, 1):
        gang.rings[node].begin(1, None)
        keep(gang.folders[node], 7, rank=node, content=CONTENT + bytes([node]))
    for node in (0, 1):
        eventually(lambda: gang.held(node) == {7: (0, 1)}, "the copies")  # noqa: B023
    gang.rings[0].stop()
    gang.rings[1].stop()


def test_a_spare_that_takes_a_place_copies_that_places_part_and_then_what_the_place_before_has(three: Two) -> None:
    train_and_lose_pod_1(three)
    for pod in (2, 0):
        three.rings[pod].begin(2, 7, (0, 2))
    eventually(lambda: three.rings[2].ready, "ready")
    assert content(three.folders[2], 7, rank=1) == CONTENT + b"\x01"
    eventually(lambda: three.held(2) == {7: (0, 1)}, "the copy of place 0")
    keep(three.folders[2], 8, rank=1, place=1, round_=2)
    eventually(lambda: three.held(0).get(8) == (1,), "what the spare's ranks have lies on pod 0")


def test_a_member_whose_part_nobody_has_is_ready_without(three: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restore, "_REACH_SECONDS", 0.0)
    train_and_lose_pod_1(three)
    for pod in (0, 2):
        three.rings[pod].begin(2, 6, (0, 2))
    eventually(lambda: three.rings[2].ready, "ready")
    assert three.held(2) == {}


def test_a_part_that_is_under_way_is_wanted_no_more_once_the_round_is_over(three: Two) -> None:
    three.rings[2].begin(2, 7, (0, 2))
    assert not three.rings[2].ready
    three.rings[2].stop()
    eventually(lambda: three.rings[2].ready, "ready")


def test_a_pod_with_another_place_than_before_keeps_nothing_of_other_places(three: Two) -> None:
    for rank in (0, 1, 2):
        keep(three.folders[2], 7, rank=rank)
    three.rings[2].begin(2, 7, (0, 2))
    assert three.held(2) == {7: (0, 1)}


def test_a_pod_that_a_round_has_begun_without_keeps_nothing_and_hands_out_nothing(three: Two) -> None:
    train_and_lose_pod_1(three)
    three.rings[1].forget()
    assert three.held(1) == {}
    assert list(three.folders[1].parent.iterdir()) == []
    assert three.rings[1].server.round == 0


def test_a_new_pod_gets_back_its_places_part_from_whichever_pod_has_it(three: Two) -> None:
    keep(three.folders[0], 7, rank=1)
    three.rings[0].server.round = 1
    again = three.ring(1, incarnation=2)
    eventually(lambda: again.ready, "ready")
    assert three.held(1) == {7: (1,)}


@pytest.fixture
def shrinking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Two:
    """Three nodes, of which 2 is lost: step 7 is on all, each with its copy of the node before it. Parts have many pieces."""
    for server_or_client in (parts_server, peer):
        monkeypatch.setattr(server_or_client, "PIECE", len(CONTENT) // 7)
    monkeypatch.setattr(module, "_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(restore, "_LOOK_SECONDS", 0.01)
    gang = Two(tmp_path, nodes=3)
    for node in range(3):
        gang.rings[node].begin(1, None)
        keep(gang.folders[node], 7, rank=node, content=CONTENT + bytes([node]), world=3)
    for node in range(3):
        eventually(lambda: gang.held(node) == {7: tuple(sorted({node, (node - 1) % 3}))}, "the copies")  # noqa: B023
        gang.rings[node].stop()
    return gang


def shrink(gang: Two) -> None:
    for pod in (0, 1):
        gang.rings[pod].begin(2, 7, (0, 1), made_by=3)
    for pod in (0, 1):
        eventually(lambda: gang.rings[pod].ready, "ready")  # noqa: B023


def test_where_a_round_has_fewer_places_each_node_copies_all_parts_that_it_lacks(shrinking: Two) -> None:
    shrink(shrinking)
    for pod in (0, 1):
        assert shrinking.held(pod) == {7: (0, 1, 2)}
        assert [content(shrinking.folders[pod], 7, rank=rank)[-1] for rank in range(3)] == [0, 1, 2]


def test_where_a_round_has_another_size_what_counts_no_longer_gives_its_room_to_what_is_copied(shrinking: Two) -> None:
    for node in (0, 1):
        for rank in (node, (node - 1) % 3):
            (shrinking.folders[node] / state_name(rank, 1)).write_bytes(CONTENT)
    shrink(shrinking)
    for pod in (0, 1):
        assert len(list(shrinking.folders[pod].glob("*.state"))) == 3


def test_parts_of_other_places_stay_until_a_newer_state_of_this_round_is_copied(shrinking: Two) -> None:
    shrink(shrinking)
    keep(shrinking.folders[0], 8, rank=0, place=1, round_=2, world=2)
    eventually(lambda: shrinking.held(1).get(8) == (0,), "the copy on pod 1")
    assert shrinking.held(1)[7] == (0, 1, 2), "pod 0 has no copy of pod 1's yet"
    assert [content(shrinking.folders[1], 7, rank=rank)[-1] for rank in range(3)] == [0, 1, 2]
    keep(shrinking.folders[1], 8, rank=1, place=1, round_=2, world=2)
    for pod in (0, 1):
        eventually(lambda: shrinking.held(pod).get(7) == (0, 1), "that the third part is gone")  # noqa: B023
        assert shrinking.held(pod)[8] == (0, 1)
        assert [content(shrinking.folders[pod], 7, rank=rank)[-1] for rank in (0, 1)] == [0, 1]
    assert steps_of(shrinking.folders[0], 2) == []


def test_where_a_part_cannot_be_had_none_is_asked_for_after_it_and_what_came_is_gone(
    shrinking: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restore, "_REACH_SECONDS", 0.0)
    for node in range(3):
        for path in shrinking.folders[node].glob("*-rank-00001.json"):
            path.unlink()
    shrink(shrinking)
    assert shrinking.held(0) == {7: (0,)}, "it had place 2's"
    assert shrinking.held(1) == {7: (0,)}, "it got place 2's"


def test_where_all_parts_have_no_room_nothing_is_copied(
    shrinking: Two, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pull.cgroup, "free_memory", lambda: len(CONTENT) // 2)
    shrink(shrinking)
    assert "are free: raise spec.pod.sharedMemory" in caplog.text
    assert shrinking.held(0) == {7: (0,)}


def test_a_node_that_had_no_room_for_a_copy_still_forgets_other_places_parts(
    shrinking: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    shrink(shrinking)
    monkeypatch.setattr(shrinking.rings[0], "_full_epoch", shrinking.rings[0]._copier.epoch)
    keep(shrinking.folders[0], 8, rank=0, place=1, round_=2, world=2)
    keep(shrinking.folders[0], 8, rank=1, place=1, round_=2, world=2)
    eventually(lambda: shrinking.held(0).get(7) == (0, 1), "that the third part is gone")


def test_a_node_that_trains_alone_keeps_its_own_state_and_no_copy(shrinking: Two) -> None:
    shrink(shrinking)
    shrinking.rings[0].stop()
    shrinking.rings[0].begin(3, 7, (0,), made_by=3)
    assert shrinking.rings[0].ready
    assert shrinking.held(0) == {7: (0, 1, 2)}
    keep(shrinking.folders[0], 8, rank=0, place=1, round_=3, world=1)
    eventually(lambda: shrinking.held(0) == {8: (0,), 7: (0,)}, "that other parts are gone")


def test_a_gang_that_is_whole_again_has_the_parts_of_fewer_places_on_each_node(shrinking: Two) -> None:
    shrinking.rings[0].begin(2, None, (0,))
    keep(shrinking.folders[0], 9, rank=0, content=CONTENT + b"alone", round_=2, world=1)
    shrinking.rings[0].stop()
    for pod in range(3):
        shrinking.rings[pod].begin(3, 9, (0, 1, 2), made_by=1)
    for pod in range(3):
        eventually(lambda: shrinking.rings[pod].ready, "ready")  # noqa: B023
        assert content(shrinking.folders[pod], 9, rank=0) == CONTENT + b"alone"
        assert shrinking.held(pod) == {9: (0,)}


def test_where_ranks_went_on_from_elsewhere_parts_of_other_places_are_gone(shrinking: Two) -> None:
    shrink(shrinking)
    shrinking.rings[0].went_on_from(5)
    assert shrinking.held(0) == {7: (0,)}, "its own, which its ranks forget"


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
