"""The canary: nodes that do not share their storage are found before a GPU is busy, and the odd one is named."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from saving import Alone, save_alone

from oarlock_api.contract.job_file import JobFile
from oarlock_api.contract.layout import Owner
from oarlock_local import patience
from oarlock_local.pytest_tiers import quick_first
from oarlock_trainer.checkpoint import canary
from oarlock_trainer.checkpoint.canary import _is_seen
from oarlock_trainer.checkpoint.canary_verdict import View, Written, judge, weigh
from oarlock_trainer.checkpoint.fence import Fence
from oarlock_trainer.checkpoint.format import MANIFEST, MARKER, FileFacts, digest, marker_of, valid_checkpoints
from oarlock_trainer.runtime.errors import PeerLostError, StorageError
from oarlock_trainer.runtime.job import Job

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture(scope="module")
def gang() -> Iterator[Callable[..., list[dict[str, Any]]]]:
    """Lets nodes with these outputs take them over, as attempt 2."""
    program = Path(__file__).parents[1] / "support/canary_nodes.py"
    process = subprocess.Popen([sys.executable, str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin
    assert process.stdout

    def run(*outputs: Path, trouble: dict[int, str] | None = None) -> list[dict[str, Any]]:
        order = {"outputs": [str(output) for output in outputs], "trouble": trouble or {}}
        assert process.stdin
        assert process.stdout
        process.stdin.write(json.dumps(order) + "\n")
        process.stdin.flush()
        answer: list[dict[str, Any]] = json.loads(process.stdout.readline())
        return answer

    yield run
    process.stdin.close()
    process.wait(timeout=patience.SECONDS)


def test_nodes_that_share_their_storage_pass_and_leave_nothing_behind(
    gang: Callable[..., list[dict[str, Any]]], tmp_path: Path
) -> None:
    assert [each["code"] for each in gang(tmp_path, tmp_path, tmp_path)] == [0, 0, 0]
    assert list((tmp_path / "checkpoints").iterdir()) == []


def test_a_file_that_cannot_even_be_asked_for_is_not_seen(tmp_path: Path) -> None:
    seen = tmp_path / "rank-00000.state"
    seen.touch()
    assert _is_seen(seen)
    assert not _is_seen(tmp_path / ("x" * 300))  # no ENOENT: as a stale handle


def test_what_a_killed_canary_left_does_not_count(gang: Callable[..., list[dict[str, Any]]], tmp_path: Path) -> None:
    for name in (".tmp-canary-uid-a2", ".tmp-canary-uid-a2-committed"):
        left = tmp_path / "checkpoints" / name
        left.mkdir(parents=True)
        (left / "rank-00001.state").write_bytes(b"old")
    assert [each["code"] for each in gang(tmp_path, tmp_path, tmp_path)] == [0, 0, 0]


def test_a_later_round_writes_its_canary_where_no_killed_rank_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = JobFile(
        job="flux", namespace="default", job_uid="uid", attempt=2, nodes=2, gpus_per_node=0,
        output_directory=str(tmp_path), training={},
    )  # fmt: skip
    written: list[str] = []
    plain = canary.write

    def noting(content: memoryview, path: Path) -> str:
        written.append(path.parent.name)
        return plain(content, path)

    monkeypatch.setattr(canary, "write", noting)
    alone: Any = Alone()
    for number in (1, 2):
        training: Any = None
        job = Job(file=file, training=training, rank_info=alone.rank_info, simulate_gpus=False, round=number)
        canary.check(job, alone)
    assert written == [".tmp-canary-uid-a2", ".tmp-canary-uid-a2-r2"]


@pytest.mark.parametrize("odd", quick_first([0, 2]))
def test_the_one_node_with_another_storage_is_named_and_the_others_are_its_victims(
    odd: int, gang: Callable[..., list[dict[str, Any]]], tmp_path: Path
) -> None:
    outputs = [tmp_path / ("elsewhere" if rank == odd else "shared") for rank in range(3)]
    ended = gang(*outputs)
    assert [each["code"] for each in ended] == [84 if rank == odd else 82 for rank in range(3)]
    assert (
        f"node gpu-0{odd} (rank {odd}) does not find what the other nodes wrote into output/checkpoints"
        in ended[odd]["said"]
    )
    assert "The other 2 nodes find one another's files: is this one mounting something else?" in ended[odd]["said"]


def test_a_node_that_mounts_something_else_costs_no_checkpoint(
    gang: Callable[..., list[dict[str, Any]]], tmp_path: Path
) -> None:
    shared = tmp_path / "shared"
    save_alone(shared, 10, uid="uid")
    found = valid_checkpoints(shared)[0]
    theirs = [found.path / f"rank-{rank:05}.state" for rank in (1, 2)]  # a file for each node to verify
    for path in theirs:
        path.write_bytes(b"state")
    facts = [FileFacts(path.name, 5, digest(path)) for path in theirs]
    body = replace(found.manifest, files=(*found.manifest.files, *facts)).to_json().encode()
    (found.path / MANIFEST).write_bytes(body)
    (found.path / MARKER).write_text(marker_of(body))
    ended = gang(shared, shared, tmp_path / "elsewhere")
    assert [each["code"] for each in ended] == [82, 82, 84]
    assert [one.step for one in valid_checkpoints(shared)] == [10]


def test_an_attempt_that_was_overtaken_writes_no_canary(
    gang: Callable[..., list[dict[str, Any]]], tmp_path: Path
) -> None:
    Fence(tmp_path, Owner("uid", 3)).take([])
    assert [each["code"] for each in gang(tmp_path, tmp_path)] == [88, 88]
    assert [path.name for path in tmp_path.iterdir()] == [".oarlock"]


def test_where_each_node_has_a_disk_of_its_own_nobody_is_blamed_and_the_remedy_is_told(
    gang: Callable[..., list[dict[str, Any]]], tmp_path: Path
) -> None:
    ended = gang(tmp_path / "a", tmp_path / "b")
    assert [each["code"] for each in ended] == [84, 84]
    assert "node gpu-00 (rank 0), node gpu-01 (rank 1) do not find one another's files" in ended[0]["said"]
    assert "ReadWriteMany" in ended[0]["said"]


@pytest.mark.parametrize("kind", ["reads otherwise", "writes otherwise"])
def test_bytes_that_do_not_arrive_are_blamed_on_the_node_that_most_others_speak_against(
    kind: str, gang: Callable[..., list[dict[str, Any]]], tmp_path: Path
) -> None:
    ended = gang(tmp_path, tmp_path, tmp_path, trouble={1: kind})
    assert [each["code"] for each in ended] == [82, 84, 82]
    assert all("node gpu-01 (rank 1)" in each["said"] for each in ended)
    assert not any(" find " in each["said"] for each in ended)  # all find all files, whatever is in them
    read, wrote = (2, 2) if kind == "reads otherwise" else (1, 1)
    assert f"rank-0000{read}.state has other bytes than node gpu-0{wrote} (rank {wrote}) wrote" in ended[1]["said"]


def test_two_nodes_that_read_otherwise_are_both_told_and_neither_is_blamed_alone(
    gang: Callable[..., list[dict[str, Any]]], tmp_path: Path
) -> None:
    ended = gang(tmp_path, tmp_path, trouble={1: "reads otherwise"})
    assert [each["code"] for each in ended] == [84, 84]
    assert all("do not read in output/checkpoints" in each["said"] for each in ended)
    assert all("has other bytes than node gpu-00 (rank 0) wrote" in each["said"] for each in ended)


def test_a_marker_that_arrives_as_no_text_is_the_storages_fault(
    gang: Callable[..., list[dict[str, Any]]], tmp_path: Path
) -> None:
    ended = gang(tmp_path, tmp_path, trouble={0: "tears the marker"})
    assert [each["code"] for each in ended] == [84, 84]
    assert all("does not fit manifest.json" in each["said"] for each in ended)


def test_where_one_node_is_gone_in_the_middle_the_others_end_as_its_victims(
    gang: Callable[..., list[dict[str, Any]]], tmp_path: Path
) -> None:
    ended = gang(tmp_path, tmp_path, tmp_path, trouble={1: "dies"})
    assert [each["code"] for each in ended] == [82, None, 82]


def test_a_node_that_reads_otherwise_is_told_so_though_it_also_speaks_against_a_writer() -> None:
    writers = [Written(rank, f"n{rank}", FileFacts(f"f{rank}", 1, "")) for rank in range(5)]
    views = [View(rank, f"n{rank}", complaint="bad f1" if rank == 0 else "") for rank in range(5)]
    views[2] = replace(views[2], complaint="bad f3")
    readings = [{"f1": "" if rank == 1 else "bad f1", "f3": "bad f3" if rank == 2 else ""} for rank in range(5)]
    for disputed in ([writers[1], writers[3]], [writers[3], writers[1]]):
        weighed = weigh(views, disputed, readings)
        assert [view.complaint for view in weighed] == ["", "", "bad f3", "", ""]
        assert [view.rank for view in weighed if view.doubted] == [1]


@pytest.mark.parametrize(("kind", "odd"), [("cannot write", 2), ("cannot commit", 0)])
def test_the_one_node_that_cannot_write_is_named_by_all_and_alone_has_the_storages_code(
    kind: str, odd: int, gang: Callable[..., list[dict[str, Any]]], tmp_path: Path
) -> None:
    ended = gang(tmp_path, tmp_path, tmp_path, trouble={odd: kind})
    assert [each["code"] for each in ended] == [84 if rank == odd else 82 for rank in range(3)]
    assert all(f"node gpu-0{odd} (rank {odd}): " in each["said"] for each in ended)
    assert all("The other 2 nodes can write there" in each["said"] for each in ended)


@pytest.mark.parametrize("trouble", [{1: "has no room"}, {0: "cannot write", 1: "cannot write"}])
def test_a_storage_that_is_full_or_that_nobody_can_write_to_is_no_nodes_fault(
    trouble: dict[int, str], gang: Callable[..., list[dict[str, Any]]], tmp_path: Path
) -> None:
    ended = gang(tmp_path, tmp_path, trouble=trouble)
    assert [each["code"] for each in ended] == [84, 84]
    assert all(f"node gpu-0{rank} (rank {rank})" in each["said"] for each in ended for rank in trouble)


def test_a_rename_that_most_nodes_do_not_see_is_nobodys_own_fault() -> None:
    views = [View(0, "a"), *(View(rank, f"n{rank}", complaint="no such folder") for rank in (1, 2, 3))]
    for rank in range(4):
        with pytest.raises(StorageError, match="no such folder"):
            judge(views, rank=rank, where="/output")


def test_the_neighbour_of_the_odd_node_is_not_blamed_for_missing_its_file() -> None:
    most = frozenset({"a", "b", "c"})
    views = [View(0, "a", most), View(1, "b", most), View(2, "c", most, "no d"), View(3, "d", frozenset("d"), "no a")]
    with pytest.raises(PeerLostError, match=r"node d \(rank 3\) does not find"):
        judge(views, rank=2, where="/output")
    with pytest.raises(StorageError, match=r"node d \(rank 3\) does not find"):
        judge(views, rank=3, where="/output")


def test_in_a_large_gang_that_shares_nothing_nobody_is_blamed() -> None:
    watched = [View(rank, f"n{rank}", frozenset({f"rank-{rank:05}.state"}), "no file") for rank in range(8)]
    views = [*watched, *(View(rank, f"n{rank}", complaint="no file") for rank in range(8, 20))]
    for rank in (0, 19):
        with pytest.raises(StorageError, match="do not find one another's files"):
            judge(views, rank=rank, where="/output")
