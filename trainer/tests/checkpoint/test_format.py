"""Which folders are checkpoints, and what a crash at any point leaves behind."""

from __future__ import annotations

import hashlib
import os
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from saving import POSITION, save_alone, saver

from oarlock_local.patience import eventually
from oarlock_trainer.checkpoint import commit
from oarlock_trainer.checkpoint.format import inspect, parse_manifest, valid_checkpoints
from oarlock_trainer.runtime import atomic_write
from oarlock_trainer.runtime.errors import FencedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


def names(output: Path) -> list[str]:
    return [one.path.name for one in valid_checkpoints(output)]


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    save_alone(tmp_path, 10)
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
        save_alone(tmp_path, step, attempt=attempt)
    assert names(tmp_path) == ["step-20-a2", "step-20-a1", "step-10-a2", "step-9-a1"]


def test_a_writer_whose_files_the_next_attempt_cleared_is_fenced_and_its_storage_is_well(tmp_path: Path) -> None:
    with saver(tmp_path) as first:
        first.begin(10, POSITION)
        first.before_update()
        with saver(tmp_path, attempt=2):
            eventually(first.ready, "that it has written")
            shutil.rmtree(tmp_path / "checkpoints" / ".tmp-step-10-a1")
            with pytest.raises(FencedError, match="attempt 2"):
                first.finish()


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
        save_alone(output, 10, keep=1)
        pid = os.fork()
        if pid == 0:
            _die_at(crash)
            save_alone(output, 20, keep=1)
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        assert code in {0, 9}
        finished = code == 0
        found = valid_checkpoints(output)
        assert found, f"nothing to resume from after a crash at operation {crash}"
        assert found[0].path.name in {"step-10-a1", "step-20-a1"}
        for file in found[0].manifest.files:
            assert hashlib.sha256((found[0].path / file.name).read_bytes()).hexdigest() == file.sha256
        save_alone(output, 30, attempt=2, keep=1)
        assert names(output)[0] == "step-30-a2"
    assert crash > 10


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
    for module in (atomic_write, commit):
        module.write_bytes = counted(module.write_bytes)  # type: ignore[attr-defined]


def test_a_damaged_checkpoint_of_the_same_step_and_attempt_is_replaced(saved: Path) -> None:
    """Its size is right: only whoever compared its hash knows, and began anew before it."""
    state = saved / "rank-00000.state"
    whole = state.read_bytes()
    state.write_bytes(b"x" * len(whole))
    save_alone(saved.parents[1], 10)
    assert state.read_bytes() == whole
    assert [path.name for path in saved.parent.iterdir()] == ["step-10-a1"]


def test_a_finished_jobs_checkpoint_of_the_same_name_is_replaced(saved: Path) -> None:
    save_alone(saved.parents[1], 10, uid="another")
    found = inspect(saved)
    assert found is not None
    assert found.manifest.job_uid == "another"


def test_rotation_keeps_the_newest_of_this_job_and_other_jobs_all(tmp_path: Path) -> None:
    save_alone(tmp_path, 10, 20, uid="earlier")
    save_alone(tmp_path, 30, 40, 50, attempt=2, keep=2)
    assert names(tmp_path) == ["step-50-a2", "step-40-a2", "step-20-a1", "step-10-a1"]


def test_damaged_checkpoints_do_not_count_for_keep_and_are_removed_once_a_newer_one_is_valid(tmp_path: Path) -> None:
    save_alone(tmp_path, 10, 20, 30, keep=2)
    (tmp_path / "checkpoints" / "step-30-a1" / "COMMITTED").unlink()
    save_alone(tmp_path, 40, keep=2)
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["step-20-a1", "step-40-a1"]
