"""Which folders are checkpoints, and what a crash at any point leaves behind."""

from __future__ import annotations

import hashlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from oarlock_api.contract.layout import Owner
from oarlock_trainer import durable
from oarlock_trainer.checkpoint import writer as writer_module
from oarlock_trainer.checkpoint.fence import Fence
from oarlock_trainer.checkpoint.format import DataPosition, inspect, parse_manifest, valid_checkpoints
from oarlock_trainer.checkpoint.writer import Writer
from oarlock_trainer.data.sampler import Origin
from oarlock_trainer.errors import FencedError
from oarlock_trainer.job import Place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

POSITION = DataPosition(
    fingerprint="f",
    order="o",
    origin=Origin(2, (3, 4)),
    reached=Origin(5, (11, 12), (1, 0)),
    streams=(("a", 9), ("b", 3)),
)


@dataclass
class Alone:
    """One rank's agreement with itself; the real exchange is tested in test_runs."""

    place: Place

    def decide(self, choose: Callable[[], Any]) -> Any:
        return choose()

    all_or_none = decide

    def gather(self, value: Any) -> list[Any]:
        return [value]


class Weights:
    """Writes as DeepSpeed does: one file of rank 0, one of each rank."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def save(self, folder: str, tag: str) -> None:
        target = Path(folder, tag)
        target.mkdir()
        (target / "mp_rank_00_model_states.pt").write_bytes(self.content)
        (target / "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt").write_bytes(self.content * 2)


def make_writer(output: Path, *, attempt: int = 1, keep: int = 5, uid: str = "job") -> Writer:
    fence = Fence(output, Owner(uid, attempt))
    fence.take([one.path.name for one in valid_checkpoints(output)])
    alone: Any = Alone(Place(rank=0, local_rank=0, world_size=1, local_world_size=1))
    return Writer(output, fence, alone, keep=keep)


def save(found: Writer, step: int, content: bytes = b"weights") -> None:
    engine: Any = Weights(content)
    found.save(engine, step, POSITION)


class TakenOver(Weights):
    """While it writes, the next attempt takes the output over and clears away what is not committed."""

    def save(self, folder: str, tag: str) -> None:
        make_writer(Path(folder).parents[1], attempt=2)
        shutil.rmtree(folder)
        super().save(folder, tag)


def names(output: Path) -> list[str]:
    return [one.path.name for one in valid_checkpoints(output)]


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    save(make_writer(tmp_path), 10)
    return tmp_path / "checkpoints" / "step-10-a1"


def test_a_manifest_is_read_as_it_was_written(saved: Path) -> None:
    found = inspect(saved)
    assert found is not None
    assert found.manifest.data == POSITION
    assert parse_manifest(found.manifest.to_json()) == found.manifest
    for file in found.manifest.files:
        assert hashlib.sha256((saved / file.name).read_bytes()).hexdigest() == file.sha256


def test_the_newest_step_comes_first_then_the_newest_attempt(tmp_path: Path) -> None:
    for attempt, step in ((1, 9), (1, 20), (2, 10), (2, 20)):
        save(make_writer(tmp_path, attempt=attempt), step)
    assert names(tmp_path) == ["step-20-a2", "step-20-a1", "step-10-a2", "step-9-a1"]


def test_a_writer_whose_files_the_next_attempt_cleared_is_fenced_and_its_storage_is_well(tmp_path: Path) -> None:
    engine: Any = TakenOver(b"weights")
    with pytest.raises(FencedError, match="attempt 2"):
        make_writer(tmp_path).save(engine, 10, POSITION)


def every_file(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file())


def test_no_file_may_be_missing_shorter_or_longer(saved: Path) -> None:
    for path in every_file(saved):
        body = path.read_bytes()
        for damage in (None, body[:-1], body[: len(body) // 2], b"", body + b"x"):
            if damage is None:
                path.unlink()
            else:
                path.write_bytes(damage)
            marker_with_space = path.name == "COMMITTED" and damage == body + b"x"
            assert inspect(saved) is None, (path.name, damage, marker_with_space)
            path.write_bytes(body)
    assert inspect(saved) is not None


def test_a_manifest_that_was_changed_after_the_commit_is_not_trusted(saved: Path) -> None:
    path = saved / "manifest.json"
    path.write_text(path.read_text().replace('"step": 10', '"step": 11'))
    assert inspect(saved) is None


def test_a_folder_of_another_name_is_no_checkpoint(saved: Path) -> None:
    other = saved.rename(saved.parent / "step-11-a1")
    assert inspect(other) is None


def test_killed_before_or_after_any_single_write_the_newest_checkpoint_loads(tmp_path: Path) -> None:
    """The process dies at its k-th file operation, for every k; then the next attempt saves as if nothing had been."""
    crash, finished = 0, False
    while not finished:
        crash += 1
        output = tmp_path / str(crash)
        save(make_writer(output, keep=1), 10, b"old")
        pid = os.fork()
        if pid == 0:
            _die_at(crash)
            save(make_writer(output, keep=1), 20, b"new")
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        assert code in {0, 9}
        finished = code == 0
        found = valid_checkpoints(output)
        assert found, f"nothing to resume from after a crash at operation {crash}"
        assert found[0].path.name in {"step-10-a1", "step-20-a1"}
        for file in found[0].manifest.files:
            assert hashlib.sha256((found[0].path / file.name).read_bytes()).hexdigest() == file.sha256
        save(make_writer(output, attempt=2, keep=1), 30)
        assert names(output)[0] == "step-30-a2"
    assert crash > 15


def _die_at(operation: int) -> None:
    count = 0

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal count
            count += 1
            if count == operation:
                os._exit(9)
            return real(*arguments, **options)

        return call

    for name in ("fsync", "rename", "unlink", "rmdir", "mkdir"):
        setattr(os, name, counted(getattr(os, name)))
    for module in (durable, writer_module):
        module.write_bytes = counted(module.write_bytes)  # type: ignore[attr-defined]


def test_a_half_written_folder_of_a_crash_does_not_block_the_same_step(tmp_path: Path) -> None:
    half = tmp_path / "checkpoints" / ".tmp-step-10-a1" / "deepspeed"
    half.mkdir(parents=True)
    (half / "leftover.pt").write_bytes(b"half")
    save(make_writer(tmp_path), 10)
    assert names(tmp_path) == ["step-10-a1"]
    assert not (tmp_path / "checkpoints" / "step-10-a1" / "deepspeed" / "leftover.pt").exists()


def test_a_step_that_is_saved_already_stays_as_it_is(saved: Path) -> None:
    before = saved.stat().st_mtime_ns
    save(make_writer(saved.parents[1]), 10)
    assert saved.stat().st_mtime_ns == before
    assert [path.name for path in saved.parent.iterdir()] == ["step-10-a1"]


def test_a_finished_jobs_checkpoint_of_the_same_name_is_replaced(saved: Path) -> None:
    save(make_writer(saved.parents[1], uid="another"), 10, b"other weights")
    found = inspect(saved)
    assert found is not None
    assert found.manifest.job_uid == "another"


def test_rotation_keeps_the_newest_of_this_job_and_other_jobs_all(tmp_path: Path) -> None:
    for step in (10, 20):
        save(make_writer(tmp_path, uid="earlier"), step)
    mine = make_writer(tmp_path, attempt=2, keep=2)
    for step in (30, 40, 50):
        save(mine, step)
    assert names(tmp_path) == ["step-50-a2", "step-40-a2", "step-20-a1", "step-10-a1"]


def test_damaged_checkpoints_do_not_count_for_keep_and_are_removed_once_a_newer_one_is_valid(tmp_path: Path) -> None:
    found = make_writer(tmp_path, keep=2)
    for step in (10, 20, 30):
        save(found, step)
    (tmp_path / "checkpoints" / "step-30-a1" / "COMMITTED").unlink()
    save(found, 40)
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["step-20-a1", "step-40-a1"]
