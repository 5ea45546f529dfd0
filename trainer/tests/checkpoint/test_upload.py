"""Checkpoints are copied beside training; a copy counts once it is whole; an output without any goes on from one."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from saving import Alone, save, saver

from oarlock_api.contract.layout import Owner
from oarlock_trainer.checkpoint.copies import Copies
from oarlock_trainer.checkpoint.fence import Fence
from oarlock_trainer.checkpoint.fetch import fetch_newest
from oarlock_trainer.checkpoint.format import valid_checkpoints
from oarlock_trainer.checkpoint.upload import Copied, Upload
from oarlock_trainer.runtime.errors import StorageError
from oarlock_trainer.storage.local import LocalFiles

ALONE: Any = Alone()


def nothing() -> None:
    """Nobody stops."""


class Store(LocalFiles):
    """A store that fails as often as it is told to, and tells in which order it was written to."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, field="training.checkpoint.upload")
        self.failures = 0
        self.written: list[str] = []

    def upload(self, name: str, file: Path) -> None:
        if self.failures:
            self.failures -= 1
            raise StorageError("the store is away")
        super().upload(name, file)
        self.written.append(name)

    def write(self, name: str, content: bytes) -> None:
        super().write(name, content)
        self.written.append(name)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "output"


def copy_all(
    store: Store, output: Path, *steps: int, keep: int = 5, uid: str = "job", attempt: int = 1
) -> list[Copied]:
    """Save and copy checkpoints, one after the other, as an attempt of its own."""
    copied = []
    with saver(output, uid=uid, attempt=attempt, keep=2) as writer:
        upload = Upload(Copies(store), Fence(output, Owner(uid, attempt)), ALONE, keep=keep)
        for step in steps:
            saved = save(writer, step)
            upload.begin(saved.path)  # type: ignore[union-attr]
            ended = upload.finish(nothing)
            assert ended is not None
            copied.append(ended)
    return copied


def fetched(store: Store, output: Path, *, uid: str = "job", attempt: int = 9, job_uid: str = "") -> Any:
    fence = Fence(output, Owner(uid, attempt))
    fence.take([])
    return fetch_newest(Copies(store), output, ALONE, fence, job_uid=job_uid, go_on=nothing)


def counting(store: Store) -> list[str]:
    return [copy.name for copy in Copies(store).newest()]


def test_a_copy_has_the_checkpoint_s_files_and_its_marker_comes_last(store: Store, output: Path) -> None:
    assert copy_all(store, output, 10) == [Copied("step-10-a1")]
    made = output / "checkpoints/step-10-a1"
    assert {entry.name for entry in store.list()} == {f"step-10-a1/{path.name}" for path in made.iterdir()}
    assert all(store.read(f"step-10-a1/{path.name}") == path.read_bytes() for path in made.iterdir())
    assert [Path(name).name for name in store.written] == ["rank-00000.state", "manifest.json", "COMMITTED"]
    assert not list((output / "checkpoints").glob(".tmp-*"))


def test_a_copy_without_its_marker_or_with_another_manifest_does_not_count(store: Store, output: Path) -> None:
    copy_all(store, output, 10, 20)
    assert counting(store) == ["step-20-a1", "step-10-a1"]
    store.remove("step-20-a1/COMMITTED")
    assert counting(store) == ["step-10-a1"]
    store.write("step-10-a1/manifest.json", store.read("step-10-a1/manifest.json") + b" ")
    assert counting(store) == []


def test_what_fails_is_told_and_the_next_checkpoint_is_copied(store: Store, output: Path) -> None:
    store.failures = 1
    first, second = copy_all(store, output, 10, 20)
    assert first == Copied("step-10-a1", "the store is away")
    assert second == Copied("step-20-a1")
    assert counting(store) == ["step-20-a1"]


def test_only_the_newest_copies_of_the_own_job_are_kept_and_what_was_never_whole_goes(
    store: Store, output: Path
) -> None:
    copy_all(store, output, 5, uid="another")
    shutil.rmtree(output)
    store.write("step-7-a1/rank-00000.state", b"half a copy")
    copy_all(store, output, 10, 20, 30, keep=2)
    assert counting(store) == ["step-30-a1", "step-20-a1", "step-5-a1"]
    assert {entry.name.partition("/")[0] for entry in store.list()} == set(counting(store))


def test_what_is_copied_is_not_sent_again_but_what_a_kill_left_of_a_copy_is_made_whole(
    store: Store, output: Path
) -> None:
    copy_all(store, output, 10)
    sent = [f"step-10-a1/{name}" for name in ("rank-00000.state", "manifest.json", "COMMITTED")]
    for lost, again in ((None, []), (sent[2], sent)):
        if lost:
            store.remove(lost)
        store.written.clear()
        upload = Upload(Copies(store), Fence(output, Owner("job", 1)), ALONE, keep=5)
        upload.begin(output / "checkpoints/step-10-a1")
        assert upload.finish(nothing) == Copied("step-10-a1")
        assert store.written == again
    assert counting(store) == ["step-10-a1"]


def test_a_copy_that_a_killed_round_began_is_taken_up_from_what_is_newest_in_the_output(
    store: Store, output: Path
) -> None:
    copy_all(store, output, 10, 20)
    store.remove("step-20-a1/COMMITTED")
    upload = Upload(Copies(store), Fence(output, Owner("job", 1)), ALONE, keep=5)
    upload.take_up(lambda: valid_checkpoints(output)[0].path)
    assert upload.finish(nothing) == Copied("step-20-a1")
    assert counting(store) == ["step-20-a1", "step-10-a1"]


def test_nothing_is_copied_where_no_checkpoint_is_there_or_ranks_find_different_ones(
    store: Store, output: Path
) -> None:
    class Others(Alone):
        def gather(self, value: Any) -> list[Any]:
            return [value, ("step-20-a1", "")]

    copy_all(store, output, 10)
    store.remove("step-10-a1/COMMITTED")
    ranks: Any = Others()
    for found in (None, output / "checkpoints/step-10-a1"):
        upload = Upload(Copies(store), Fence(output, Owner("job", 1)), ranks if found else ALONE, keep=5)
        upload.take_up(lambda: found)  # noqa: B023 - it ends before the next one
        assert upload.finish(nothing) is None
    assert counting(store) == []


def test_no_copy_that_counts_is_written_over(store: Store, output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same step made again, by a later round, or by another job in the same place."""
    plain = Store.upload

    def upload(self: Store, name: str, file: Path) -> None:
        assert not counting(self)
        plain(self, name, file)

    monkeypatch.setattr(Store, "upload", upload)
    copy_all(store, output, 10)
    for uid in ("job", "another"):
        shutil.rmtree(output)
        before = store.written.copy()
        copy_all(store, output, 10, uid=uid)
        assert [copy.manifest.job_uid for copy in Copies(store).newest()] == [uid]
        assert (store.written == before) == (uid == "job")


def test_what_a_killed_round_held_for_its_copy_is_let_go_with_the_next_copy(store: Store, output: Path) -> None:
    folder = output / "checkpoints"
    folder.mkdir(parents=True)
    (folder / ".tmp-upload-step-5-a1-rank-00000.state").write_bytes(b"held")
    (folder / ".tmp-upload-step-5-a1-rank-00001.state").write_bytes(b"another rank's")
    copy_all(store, output, 10)
    assert [path.name for path in folder.glob(".tmp-*")] == [".tmp-upload-step-5-a1-rank-00001.state"]


def test_the_last_checkpoint_is_copied_though_it_came_while_another_one_was(store: Store, output: Path) -> None:
    with saver(output) as writer:
        upload = Upload(Copies(store), Fence(output, Owner("job", 1)), ALONE, keep=5)
        for step in (10, 20, 30):
            upload.begin(save(writer, step).path)  # type: ignore[union-attr]
        assert upload.finish(nothing) == Copied("step-30-a1")
    assert counting(store) == ["step-30-a1", "step-10-a1"]


def test_a_checkpoint_that_is_deleted_meanwhile_is_copied_whole(
    store: Store, output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = Store.upload

    def deleting(self: Store, name: str, file: Path) -> None:
        shutil.rmtree(output / "checkpoints/step-10-a1")
        plain(self, name, file)

    monkeypatch.setattr(Store, "upload", deleting)
    assert copy_all(store, output, 10) == [Copied("step-10-a1")]
    monkeypatch.undo()
    assert fetched(store, output).step == 10


def test_a_rank_that_sends_several_files_holds_all_of_them_from_the_start(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = tmp_path / "step-10-a1"
    made.mkdir()
    for name in ("rank-00000.state", "rank-00001.state"):
        (made / name).write_bytes(name.encode())
    plain = Store.upload

    def deleting(self: Store, name: str, file: Path) -> None:
        plain(self, name, file)
        shutil.rmtree(made, ignore_errors=True)

    monkeypatch.setattr(Store, "upload", deleting)
    Copies(store).send(made, ["rank-00000.state", "rank-00001.state"])
    assert store.read("step-10-a1/rank-00001.state") == b"rank-00001.state"
    assert list(tmp_path.glob(".tmp-*")) == []


def test_an_output_without_checkpoints_gets_the_newest_copy_and_later_attempts_trust_it(
    store: Store, output: Path
) -> None:
    copy_all(store, output, 10, 20)
    before = {path.name: path.read_bytes() for path in (output / "checkpoints/step-20-a1").iterdir()}
    shutil.rmtree(output)
    found = fetched(store, output)
    assert (found.step, found.attempt) == (20, 1)
    assert {path.name: path.read_bytes() for path in found.path.iterdir()} == before
    assert [one.path for one in valid_checkpoints(output)] == [found.path]
    assert Fence(output, Owner("job", 10)).previous().trusted == ("step-20-a1",)


def test_a_later_round_fetches_into_a_folder_of_its_own(store: Store, output: Path) -> None:
    copy_all(store, output, 10)
    shutil.rmtree(output)
    fence = Fence(output, Owner("job", 1, 2))
    fence.take([])
    seen: set[str] = set()

    def looking() -> None:
        seen.update(path.name for path in (output / "checkpoints").iterdir())

    assert fetch_newest(Copies(store), output, ALONE, fence, job_uid="", go_on=looking)
    assert seen == {".tmp-step-10-a1-r2"}


@pytest.mark.parametrize("damage", ["missing", "short", "changed"])
def test_a_damaged_copy_is_passed_over_for_the_one_before(store: Store, output: Path, damage: str) -> None:
    copy_all(store, output, 10, 20)
    shutil.rmtree(output)
    name = "step-20-a1/rank-00000.state"
    content = store.read(name)
    store.remove(name)
    if damage != "missing":
        store.write(name, content[:-4] if damage == "short" else b"\x01" + content[1:])
    assert fetched(store, output).step == 10
    assert [one.step for one in valid_checkpoints(output)] == [10]


def test_a_job_that_never_resumes_takes_only_its_own_copies(store: Store, output: Path) -> None:
    copy_all(store, output, 10, uid="another")
    shutil.rmtree(output)
    assert fetched(store, output, job_uid="job") is None
    assert fetched(store, output).step == 10
