"""Two agents' parts of the ring: what each copies from the other, what it forgets, and what comes back to a lost pod."""

from __future__ import annotations

import shutil
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from agent_process import eventually, free_port
from keeping import CONTENT, KEY, OF, content, keep

from oarlock_api.contract.rounds import InPlace
from oarlock_trainer.agent.ring import ring as module
from oarlock_trainer.agent.ring.ring import Ring, is_on
from oarlock_trainer.agent.status.status_server import StatusServer
from oarlock_trainer.checkpoint.memory.held import folder_of, held, steps_of
from oarlock_trainer.runtime.assignment import Assignment, Pod

if TYPE_CHECKING:
    from pathlib import Path

POD = Pod(rank=0, job="flux", attempt=1, pod_uid="", node="", replaces_pods=True)


def assigned(node: int, ports: list[int], home: Path, *, incarnation: int = 1) -> Assignment:
    memory = SimpleNamespace(every_steps="1")
    recovery = SimpleNamespace(in_place=InPlace.AUTO, memory=memory, standby_seconds=300)
    job: Any = SimpleNamespace(nodes=2, gpus_per_node=0, recovery=recovery, custom=None, **OF)
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
    """Both agents' rings, each with a folder of its own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.ports = [free_port(), free_port()]
        self.folders = [folder_of(**OF, shared_memory=home / str(node)) for node in (0, 1)]
        for folder in self.folders:
            folder.parent.mkdir()
        self.rings = [self.ring(node) for node in (0, 1)]
        for node, ring in enumerate(self.rings):
            self.serve(node, ring)

    def ring(self, node: int, *, incarnation: int = 1) -> Ring:
        return Ring(assigned(node, self.ports, self.home, incarnation=incarnation), self.folders[node], KEY)

    def serve(self, node: int, ring: Ring) -> None:
        status: Any = None
        StatusServer(port=self.ports[node], job="flux", status=lambda: status, alive=lambda: True, parts=ring.server)

    def held(self, node: int) -> dict[int, tuple[int, ...]]:
        return held(self.folders[node], ranks_per_node=1)


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Two:
    monkeypatch.setattr(module, "_LOOK_SECONDS", 0.01)
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


def test_once_no_rank_is_left_nothing_changes_any_more(two: Two) -> None:
    two.rings[1].begin(1, None)
    epoch = two.rings[1]._epoch
    two.rings[1].stop()
    two.rings[0].server.round = 1
    keep(two.folders[0], 7)
    with pytest.raises(module.StoppedError):
        two.rings[1]._copy_newest(epoch)
    assert two.held(1) == {}


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


def test_a_pod_whose_part_nobody_has_is_ready_without(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    again = two.ring(0, incarnation=2)
    eventually(lambda: again.ready, "ready")
    monkeypatch.setattr(module, "_REACH_SECONDS", 0.0)
    two.ports[1] = free_port()  # nobody is there
    alone = two.ring(0, incarnation=2)
    eventually(lambda: alone.ready, "ready")
    assert two.held(0) == {}


def test_a_pod_of_the_first_incarnation_waits_for_nobody(two: Two) -> None:
    assert two.rings[0].ready


@pytest.mark.parametrize(
    "change", ["nobody is replaced", "no key", "one node", "own command", "no rounds", "no memory"]
)
def test_there_is_no_ring_where_it_has_no_use_or_nobody_may_be_told(tmp_path: Path, change: str) -> None:
    assignment = assigned(0, [1, 2], tmp_path)
    job: Any = assignment.job
    assert is_on(assignment)
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
    assert not is_on(assignment)
