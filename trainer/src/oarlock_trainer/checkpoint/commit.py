"""What makes a finished save a checkpoint, and which older ones go: rank 0's part of saving.

A crash at any byte leaves the temporary folder, which nobody reads and a later save or the next owner removes, or the whole
checkpoint.
"""

from __future__ import annotations

import shutil
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from oarlock_api.contract.layout import CHECKPOINTS, checkpoint_name, parse_checkpoint_name
from oarlock_trainer.checkpoint.format import MANIFEST, MARKER, marker_of, valid_checkpoints
from oarlock_trainer.runtime.atomic_write import TEMPORARY, sync_folder, write_bytes
from oarlock_trainer.runtime.errors import StorageError, TrainingEnd, storage

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from oarlock_trainer.checkpoint.fence import Fence
    from oarlock_trainer.checkpoint.format import Checkpoint, CheckpointManifest


_OLD = "old-"
"""After TEMPORARY: the name of what is being deleted."""


class Commit:
    """Commits, rotates and makes room below one output, for the owner of `fence`."""

    def __init__(self, output: Path, fence: Fence, *, keep: int) -> None:
        """`keep` valid checkpoints of this job stay."""
        self._output = output
        self._folder = output / CHECKPOINTS
        self._fence = fence
        self._keep = keep

    def final(self, step: int) -> Path:
        """The folder of a checkpoint."""
        return self._folder / checkpoint_name(step, self._fence.owner.attempt)

    def temporary(self, step: int) -> Path:
        """Where this round writes a checkpoint until it is one."""
        return self._folder / f"{TEMPORARY}{self.final(step).name}{self._fence.owner.round_mark}"

    def commit(self, manifest: CheckpointManifest) -> Path:
        """Make the files that all ranks have written a checkpoint, and delete those that are too many.

        Raises FencedError where the output was taken over meanwhile: then nothing was committed. Raises StorageError.
        """
        temporary, final = self.temporary(manifest.step), self.final(manifest.step)
        with self.writing(manifest.step):
            make_valid(temporary, final, manifest=manifest.to_json().encode(), fence=self._fence)
            self._remove_leftovers()
            self._fence.check()  # whoever took over meanwhile goes on from one that is not ours to delete
            self._rotate()
        return final

    def look_for_room(self, step: int, size: int) -> None:
        """Delete the oldest checkpoints beyond the newest valid one, as many as a new one of `size` bytes needs.

        What fails here is told by the save itself. Storages free room when they like, so their sizes are counted.
        """
        with suppress(TrainingEnd), self.writing(step):
            missing = self._missing(size)
            if missing > 0:
                self._remove_leftovers(writing=step)
                missing = self._missing(size)
            older = self._older()
            while missing > 0 and older:
                oldest = older.pop()
                discard(oldest.path)
                missing -= sum(file.size for file in oldest.manifest.files)

    def make_room(self, step: int) -> bool:
        """Give up what was written of a checkpoint for which the storage has no room, and the oldest one that may go.

        The newest valid one stays. Tells whether an older one was deleted.
        """
        with self.writing(step):
            self._remove_leftovers()
            older = self._older()
            if older:
                discard(older[-1].path)
            return bool(older)

    @contextmanager
    def writing(self, step: int) -> Iterator[None]:
        """Turn the storage's failures into StorageError, unless the next attempt has cleared our files away."""
        try:
            with storage(f"saving the checkpoint of step {step}"):
                yield
        except StorageError:
            with suppress(StorageError):
                self._fence.check()
            raise

    def _missing(self, size: int) -> int:
        """Bytes that the storage lacks for `size` more; it may not tell."""
        storage_now = shutil.disk_usage(self._output)
        return size - storage_now.free if storage_now.total else 0

    def _remove_leftovers(self, *, writing: int | None = None) -> None:
        """Delete what is half-written or half-deleted, but for what this round writes of the step `writing`.

        Rounds that were killed leave it, and those that go on from memory take nothing over. It costs room alone, so what
        can't be deleted stays. Raises FencedError: the next owner fetches copies under such names.
        """
        self._fence.check()
        spared = None if writing is None else self.temporary(writing)
        for path in list(self._folder.glob(f"{TEMPORARY}*")):
            name = path.name.removeprefix(TEMPORARY)
            if path != spared and (name.startswith(_OLD) or self._is_half_written(name)):
                shutil.rmtree(path, ignore_errors=True)

    def _is_half_written(self, name: str) -> bool:
        """Whether this round, or an attempt or round before it, began what is called so after TEMPORARY."""
        checkpoint, _, later_round = name.partition("-r")
        parsed, number, owner = parse_checkpoint_name(checkpoint), later_round or "1", self._fence.owner
        return bool(parsed and number.isdecimal() and (parsed[1], int(number)) <= (owner.attempt, owner.round))

    def _rotate(self) -> None:
        """Delete this job's oldest beyond `keep`, and what is damaged and older than the newest valid one."""
        valid = valid_checkpoints(self._output)
        own = self._own(valid)
        names = {one.path.name for one in valid}
        for old in own[self._keep :]:
            discard(old.path)
        for path in list(self._folder.iterdir()):
            parsed = parse_checkpoint_name(path.name)
            if parsed and path.name not in names and own and parsed < (own[0].step, own[0].attempt):
                discard(path)

    def _older(self) -> list[Checkpoint]:
        """This job's that may go, newest first: all but the newest valid one."""
        return self._own(valid_checkpoints(self._output))[1:]

    def _own(self, valid: list[Checkpoint]) -> list[Checkpoint]:
        return [one for one in valid if one.manifest.job_uid == self._fence.owner.job_uid]


def make_valid(temporary: Path, final: Path, *, manifest: bytes, fence: Fence) -> None:
    """Make a folder with all files of a checkpoint, synced each, the checkpoint `final`.

    Raises FencedError where the output was taken over, and OSError.
    """
    write_bytes(temporary / MANIFEST, manifest)
    write_bytes(temporary / MARKER, marker_of(manifest).encode())  # syncs the folder, too
    fence.check()
    # There may be one of another job, a damaged one, or one that a round before made: deleting it may take long, and at no
    # moment of that is there to be none.
    old = _set_aside(final) if final.exists() else None
    temporary.rename(final)
    sync_folder(final.parent)
    if old:
        shutil.rmtree(old, ignore_errors=True)


def discard(path: Path) -> None:
    """Delete a checkpoint; its name first, because a half-deleted one must not look like one. Raises OSError."""
    shutil.rmtree(_set_aside(path), ignore_errors=True)


def _set_aside(path: Path) -> Path:
    trash = path.parent / f"{TEMPORARY}{_OLD}{path.name}"
    shutil.rmtree(trash, ignore_errors=True)
    path.rename(trash)
    return trash
