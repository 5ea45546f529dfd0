"""Saving: all ranks write into a temporary folder, rank 0 commits it with a rename, old ones go.

A crash at any byte leaves the temporary folder, which nobody reads and the next owner removes, or the whole checkpoint.
"""

from __future__ import annotations

import hashlib
import shutil
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from oarlock_api.contract.layout import CHECKPOINTS, checkpoint_name, parse_checkpoint_name
from oarlock_trainer.checkpoint.format import (
    MANIFEST,
    MARKER,
    TAG,
    DataPosition,
    FileFacts,
    Manifest,
    digest,
    inspect,
    valid_checkpoints,
)
from oarlock_trainer.durable import TEMPORARY, sync_file, sync_folder, write_bytes
from oarlock_trainer.errors import StorageError, storage

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from oarlock_trainer.checkpoint.fence import Fence
    from oarlock_trainer.engine.deepspeed import Engine
    from oarlock_trainer.engine.process_group import Ranks


@dataclass(frozen=True, slots=True)
class Saved:
    """A committed checkpoint. `saved_at` RFC 3339, `stall_seconds` how long training stood still for it."""

    step: int
    path: Path
    saved_at: str
    stall_seconds: float


class Writer:
    """Saves checkpoints of one attempt. All methods are collective."""

    def __init__(self, output: Path, fence: Fence, ranks: Ranks, *, keep: int) -> None:
        """`keep` valid checkpoints of this job stay."""
        self._folder = output / CHECKPOINTS
        self._output = output
        self._fence = fence
        self._ranks = ranks
        self._keep = keep

    def save(self, engine: Engine, step: int, data: DataPosition) -> Saved:
        """Write, verify and commit a checkpoint after `step` steps.

        Raises FencedError where the output was taken over meanwhile: then nothing was committed.
        """
        began = time.monotonic()
        name = checkpoint_name(step, self._fence.owner.attempt)
        temporary = self._folder / f"{TEMPORARY}{name}"
        doing = f"saving the checkpoint of step {step}"

        def begin() -> None:
            with self._writing(doing):
                shutil.rmtree(temporary, ignore_errors=True)
                temporary.mkdir(parents=True)

        def own_files() -> list[FileFacts]:
            with self._writing(doing):
                return _own_files(temporary, self._ranks)

        def commit() -> str:
            with self._writing(doing):
                saved_at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
                manifest = Manifest(
                    step=step, attempt=self._fence.owner.attempt, job_uid=self._fence.owner.job_uid,
                    world_size=self._ranks.place.world_size, saved_at=saved_at, data=data, files=tuple(files),
                )  # fmt: skip
                self._commit(temporary, self._folder / name, manifest)
                self._rotate()
                return saved_at

        self._ranks.decide(begin)
        with self._writing(doing):
            engine.save(str(temporary), TAG)
        files = sorted(
            (file for some in self._ranks.gather(self._ranks.all_or_none(own_files)) for file in some),
            key=lambda file: file.name,
        )
        saved_at = self._ranks.decide(commit)
        return Saved(step, self._folder / name, saved_at, time.monotonic() - began)

    @contextmanager
    def _writing(self, doing: str) -> Iterator[None]:
        """Turn the storage's failures into StorageError, unless the next attempt has cleared our files away."""
        try:
            with storage(doing):
                yield
        except StorageError:
            with suppress(StorageError):
                self._fence.check()
            raise

    def _commit(self, temporary: Path, final: Path, manifest: Manifest) -> None:
        body = manifest.to_json().encode()
        write_bytes(temporary / MANIFEST, body)
        write_bytes(temporary / MARKER, hashlib.sha256(body).hexdigest().encode())
        sync_folder(temporary / TAG)
        sync_folder(temporary)
        self._fence.check()
        if final.exists():
            existing = inspect(final)
            if existing and existing.manifest.job_uid == manifest.job_uid:
                # This attempt saved this step before it restarted in place: the same state, and valid already.
                shutil.rmtree(temporary)
                return
            self._discard(final)
        temporary.rename(final)
        sync_folder(final.parent)

    def _rotate(self) -> None:
        """Delete this job's oldest beyond `keep`, and what is damaged and older than the newest valid one."""
        valid = valid_checkpoints(self._output)
        own = [one for one in valid if one.manifest.job_uid == self._fence.owner.job_uid]
        names = {one.path.name for one in valid}
        for old in own[self._keep :]:
            self._discard(old.path)
        for path in list(self._folder.iterdir()):
            parsed = parse_checkpoint_name(path.name)
            if parsed and path.name not in names and own and parsed < (own[0].step, own[0].attempt):
                self._discard(path)

    def _discard(self, path: Path) -> None:
        """Take the name away first: a half-deleted checkpoint must not look like one."""
        trash = path.parent / f"{TEMPORARY}old-{path.name}"
        shutil.rmtree(trash, ignore_errors=True)
        path.rename(trash)
        shutil.rmtree(trash, ignore_errors=True)


def _own_files(folder: Path, ranks: Ranks) -> list[FileFacts]:
    """Sync and hash the files that this rank wrote.

    The writer itself must sync: over NFS another node's fsync flushes nothing of ours. DeepSpeed puts the rank into the
    name of each optimizer part; the rest is rank 0's.
    """
    found = []
    for path in sorted((folder / TAG).iterdir()):
        if _writer_of(path.name) == ranks.place.rank:
            sync_file(path)
            found.append(FileFacts(f"{TAG}/{path.name}", path.stat().st_size, digest(path)))
    return found


def _writer_of(name: str) -> int:
    parts: Sequence[str] = name.partition("zero_pp_rank_")[2].split("_")
    return int(parts[0]) if parts[0].isdecimal() else 0
