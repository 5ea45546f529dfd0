"""The check of the clock: the kernel of this machine plays the file server, and the node's clock is an argument."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from oarlock_trainer.preflight import clock
from oarlock_trainer.preflight.clock import ClockOffset
from oarlock_trainer.preflight.storage import Mount

if TYPE_CHECKING:
    from collections.abc import Callable

    from oarlock_trainer.preflight.finding import Finding

SERVER = Mount(point="/output", kind="nfs4", source="10.0.0.100:/exports")


def exactly(ahead: float) -> ClockOffset:
    return ClockOffset(ahead - 0.01, ahead + 0.01)


def ahead_by(seconds: float) -> Callable[[], float]:
    return lambda: time.time() + seconds


class Node:
    """One node of three, whose output is mounted as `kind`; `meanwhile` happens whenever it waits."""

    def __init__(self, folder: Path, *, rank: int = 0, ahead: float = 0.0, kind: str = "nfs4") -> None:
        self.folder, self.rank, self.ahead = folder, rank, ahead
        self.waited = 0.0
        self._mounts = folder.parent / f"mounts-{rank}"
        self._mounts.write_text(f"1 0 0:1 / {folder} rw - {kind} 10.0.0.100:/exports rw\n")

    def find(self, meanwhile: Callable[[float], object] = lambda _waited: None, *, gang: str = "uid/1") -> Finding:
        def pause(seconds: float) -> None:
            self.waited += seconds
            meanwhile(self.waited)

        return clock.find(
            directory=str(self.folder), node=f"gpu-{self.rank:02}", gang=gang, rank=self.rank, nodes=3, patience=100.0,
            clock=ahead_by(self.ahead), pause=pause, mounts=self._mounts,
        )  # fmt: skip


@pytest.fixture
def output(tmp_path: Path) -> Path:
    folder = tmp_path / "output"
    folder.mkdir()
    return folder


def test_a_clock_that_agrees_with_the_servers_passes_and_leaves_only_its_reading(output: Path) -> None:
    finding = Node(output).find()
    assert (finding.result, finding.code) == ("Passed", 0)
    assert [path.name for path in (output / ".oarlock/clocks").iterdir()] == ["0.json"]


@pytest.mark.parametrize("kind", ["ext4", "overlay", "tmpfs", "ceph", "lustre"])
def test_storage_that_stamps_with_the_nodes_own_clock_cannot_tell_and_says_so(output: Path, kind: str) -> None:
    finding = Node(output, ahead=1000.0, kind=kind).find()
    assert (finding.result, finding.code) == ("NotSupported", 0)
    assert f"({kind} 10.0.0.100:/exports at {output}) stamps files with this node's own clock" in finding.detail


@pytest.mark.parametrize(("ahead", "words"), [(30.0, "30.0 s ahead of"), (-30.0, "30.0 s behind")])
def test_half_a_minute_is_a_warning_with_the_number_and_the_remedy(output: Path, ahead: float, words: str) -> None:
    finding = Node(output, ahead=ahead).find()
    assert (finding.result, finding.code) == ("Warning", 0)
    assert f"node gpu-00 is {words} the file server (nfs4 10.0.0.100:/exports" in finding.detail
    assert "chrony" in finding.detail


def test_a_node_that_the_server_and_the_others_speak_against_is_unfit(output: Path) -> None:
    for rank in (1, 2):
        assert Node(output, rank=rank).find().result == "Passed"
    finding = Node(output, ahead=-500.0).find()
    assert (finding.result, finding.code) == ("Failed", 87)
    assert "500.0 s behind the file server" in finding.detail
    assert "500.0 s away from 2 other nodes, at most 60 s are allowed" in finding.detail
    assert "chronyc makestep" in finding.detail


def test_where_all_nodes_agree_it_is_the_server_whose_clock_is_wrong(output: Path) -> None:
    Node(output, rank=1, ahead=500.0).find()
    Node(output, rank=2, ahead=501.0).find()
    finding = Node(output, ahead=500.0).find()
    assert (finding.result, finding.code) == ("Warning", 0)
    assert "the server's clock is wrong" in finding.detail


def test_a_node_that_looks_wrong_waits_for_the_others_to_speak(output: Path) -> None:
    node = Node(output, ahead=500.0)
    others = {3.0: 1, 5.0: 2}

    def start(waited: float) -> None:
        if waited in others:
            Node(output, rank=others[waited]).find()

    assert node.find(start).result == "Failed"
    assert node.waited == 5.0


def test_on_its_own_word_alone_no_node_is_unfit(output: Path) -> None:
    node = Node(output, ahead=500.0)
    finding = node.find()
    assert (finding.result, node.waited) == ("Warning", 30.0)
    assert "no other node has left a reading" in finding.detail


def test_readings_of_an_earlier_attempt_are_no_witnesses(output: Path) -> None:
    for rank in (1, 2):
        Node(output, rank=rank).find(gang="uid/1")
    assert Node(output, ahead=500.0).find(gang="uid/2").result == "Warning"


def test_an_unreadable_reading_is_no_witness(output: Path) -> None:
    (output / ".oarlock/clocks").mkdir(parents=True)
    (output / ".oarlock/clocks/1.json").write_text('{"gang": "uid/1", "least": "now"}')
    (output / ".oarlock/clocks/2.json").write_text("torn")
    assert "no other node" in Node(output, ahead=500.0).find().detail


def test_an_output_that_takes_no_folder_cannot_tell_and_that_is_the_storage_checks_to_refuse(output: Path) -> None:
    (output / ".oarlock").write_text("a file where a folder should be")
    finding = Node(output).find()
    assert (finding.result, finding.code) == ("NotSupported", 0)


def test_slow_storage_is_not_held_against_the_clock(tmp_path: Path) -> None:
    moments = iter([1000.0, 1300.0] * 3)  # the clock before and after each probe: five minutes for a folder
    folder = tmp_path / "slow"
    folder.mkdir()
    real = time.time()
    reading = clock.measure(folder, lambda: next(moments) + real - 1150.0)
    assert reading.certain == 0.0
    assert clock.judge(reading, [], mount=SERVER, node="a").result == "Passed"


@pytest.mark.parametrize(
    ("own", "others", "result"),
    [
        (1.9, [], "Passed"),
        (2.1, [0.0, 0.0], "Warning"),
        (-59.0, [0.0, 0.0], "Warning"),
        (61.0, [0.0], "Failed"),
        (61.0, [-0.5, 0.5, 61.0], "Failed"),
        (61.0, [61.0, 60.0, 0.0], "Warning"),
        (61.0, [], "Warning"),
    ],
)
def test_the_bounds_are_two_seconds_and_a_minute(own: float, others: list[float], result: str) -> None:
    readings = [exactly(other) for other in others]
    assert clock.judge(exactly(own), readings, mount=SERVER, node="a").result == result


def test_a_reading_is_published_with_what_the_other_nodes_need(output: Path) -> None:
    Node(output, rank=2, ahead=7.0).find()
    published = json.loads((output / ".oarlock/clocks/2.json").read_text())
    assert published["gang"] == "uid/1"
    assert published["least"] <= 7.0 <= published["most"]
