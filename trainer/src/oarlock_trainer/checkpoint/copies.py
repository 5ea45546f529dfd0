"""Copies of checkpoints in a store: each below its name, with the same files as in the output.

    step-120-a2/rank-00000.state ... manifest.json COMMITTED

A copy counts once its marker is there, which comes last. What is missing or torn in one that counts is found out when it is
fetched, by its hashes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from oarlock_api.contract.layout import parse_checkpoint_name
from oarlock_trainer.checkpoint.export import link_or_copy
from oarlock_trainer.checkpoint.format import MANIFEST, MARKER, CheckpointManifest, marker_of, parse_manifest
from oarlock_trainer.runtime.atomic_write import TEMPORARY
from oarlock_trainer.runtime.errors import storage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from oarlock_trainer.storage.files import FileEntry, Files


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy that counts: its name, its manifest, and the bytes that this was read from."""

    name: str
    manifest: CheckpointManifest
    body: bytes


class Copies:
    """The copies below one place, which is one job's alone. All methods raise StorageError and ConfigurationError."""

    def __init__(self, files: Files) -> None:
        self.files = files

    def send(self, path: Path, files: Iterable[str]) -> None:
        """Copy these files of a checkpoint, though it is deleted meanwhile: all are held before the first goes.

        They are this rank's: what it held of them when it was killed, of any checkpoint, is let go.
        """
        held = {file: path.parent / f"{TEMPORARY}upload-{path.name}-{file}" for file in files}
        try:
            with storage(f"copying {path}"):
                for file, link in held.items():
                    for left in list(path.parent.glob(f"{TEMPORARY}upload-*-{file}")):
                        left.unlink(missing_ok=True)
                    link_or_copy(path / file, link)
            for file, link in held.items():
                self.files.upload(f"{path.name}/{file}", link)
        finally:
            for link in held.values():
                link.unlink(missing_ok=True)

    def commit(self, name: str, manifest: bytes) -> None:
        """Make a copy count whose other files are all there."""
        self.files.write(f"{name}/{MANIFEST}", manifest)
        self.files.write(f"{name}/{MARKER}", marker_of(manifest).encode())

    def holds(self, name: str, *, job_uid: str) -> bool:
        """Whether a copy of the job's checkpoint of this name counts: of this very one, or of one of the same state."""
        copy = self._read(name)
        return copy is not None and copy.manifest.job_uid == job_uid

    def retract(self, name: str) -> None:
        """Let a copy no longer count: nothing is written over one that does."""
        self.files.remove(f"{name}/{MARKER}")

    def newest(self, *, job_uid: str = "") -> Iterator[Copy]:
        """Copies that count, newest first; with `job_uid`, of that job alone."""
        for name in _counting(self.files.list()):
            copy = self._read(name)
            if copy and job_uid in ("", copy.manifest.job_uid):
                yield copy

    def rotate(self, keep: int, *, job_uid: str) -> None:
        """Remove that job's copies beyond the newest `keep`, and what is older than the newest and no copy."""
        listed = self.files.list()
        counting = _counting(listed)
        own = [name for name in counting if (copy := self._read(name)) and copy.manifest.job_uid == job_uid]
        gone = own[keep:]
        present = {entry.name.partition("/")[0] for entry in listed}
        newest = parse_checkpoint_name(counting[0]) if counting else None
        for name in present - set(counting):
            parsed = parse_checkpoint_name(name)
            if parsed and newest and parsed < newest:
                gone.append(name)
        for name in gone:
            self.files.remove(f"{name}/{MARKER}")  # first: half a copy must not look like one
            for entry in listed:
                if entry.name.startswith(f"{name}/"):
                    self.files.remove(entry.name)

    def _read(self, name: str) -> Copy | None:
        try:
            body, marker = (self.files.read(f"{name}/{file}") for file in (MANIFEST, MARKER))
            if marker_of(body) != marker.decode().strip():
                return None
            manifest = parse_manifest(body.decode())
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None
        return Copy(name, manifest, body) if (manifest.step, manifest.attempt) == parse_checkpoint_name(name) else None


def _counting(entries: Iterable[FileEntry]) -> list[str]:
    """Names with a marker, newest first."""
    found = {
        name: parsed
        for entry in entries
        for name, _, file in [entry.name.partition("/")]
        if file == MARKER and (parsed := parse_checkpoint_name(name))
    }
    return sorted(found, key=lambda name: found[name], reverse=True)
