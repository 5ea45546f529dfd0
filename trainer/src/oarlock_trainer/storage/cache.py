"""A cache on this node's disk in front of a place for files that is far away.

What is read is kept by place, name, version and range, and answered from the disk when it is asked for again, also by
another process of the node. Ranges are kept as they were asked for: an index says the same range every time.

- It is capped: the least recently used goes first. All processes together stay below the cap.
- Nobody waits for another: there are no locks but names that appear at once, with a checksum inside. What a crash leaves
  half-written is never read, and goes with time.
- It is an offer. Where the disk is full or broken, reads go on without it.
- Within one process a file's version is asked for once: the process sees a file that others replace as it was. What is
  written through the cache is seen at once.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import threading
import time
import zlib
from typing import TYPE_CHECKING, BinaryIO

from oarlock_trainer.runtime.atomic_write import TEMPORARY
from oarlock_trainer.storage.room import Room

if TYPE_CHECKING:
    from pathlib import Path

    from oarlock_trainer.storage.files import FileEntry, Files

_CHECKSUM_BYTES = 4
_KNOWN_VERSIONS = 1 << 16


class CachedFiles:
    """`files`, kept below `folder` in at most `capacity` bytes, which `processes` of this node share.

    A piece larger than a fifth of a process's part of the capacity is not kept.
    """

    def __init__(self, files: Files, folder: Path, *, capacity: int, processes: int = 1) -> None:
        self._files = files
        self._folder = folder
        self._room = Room(folder, capacity=capacity, processes=processes)
        self._lock = threading.Lock()
        self._versions: dict[str, str] = {}

    @property
    def where(self) -> str:
        """The place itself: a cache is not seen."""
        return self._files.where

    def list(self) -> list[FileEntry]:
        """As the place says now."""
        entries = self._files.list()
        with self._lock:
            self._versions = {entry.name: entry.version for entry in entries[:_KNOWN_VERSIONS]}
        return entries

    def find(self, name: str) -> FileEntry | None:
        """As the place says now."""
        entry = self._files.find(name)
        self._learn(name, entry.version if entry else None)
        return entry

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """Bytes from `start`, from the disk where they are there."""
        version = self._versions.get(name)
        if version is None:
            entry = self.find(name)
            if entry is None:
                return self._files.read(name, start, length)  # knows best how to say what is missing
            version = entry.version
        path = self._path(f"{self.where}\0{name}\0{version}\0{start}\0{length}")
        content = _load(path)
        if content is None:
            content = self._files.read(name, start, length)
            self._keep(path, content)
        return content

    def open(self, name: str) -> BinaryIO:
        """The place's own file: who reads here and there in one seldom asks for the same range again."""
        return self._files.open(name)

    def write(self, name: str, content: bytes) -> None:
        """Create or replace a file in one piece."""
        self._learn(name, None)
        self._files.write(name, content)

    def upload(self, name: str, file: Path) -> None:
        """Create or replace a file by a finished one of this machine."""
        self._learn(name, None)
        self._files.upload(name, file)

    def remove(self, name: str) -> None:
        """Remove a file; fine where there is none."""
        self._learn(name, None)
        self._files.remove(name)

    def _learn(self, name: str, version: str | None) -> None:
        with self._lock:
            self._versions.pop(name, None)
            if version is not None:
                self._versions[name] = version
            if len(self._versions) > _KNOWN_VERSIONS:
                del self._versions[next(iter(self._versions))]

    def _path(self, what: str) -> Path:
        digest = hashlib.sha256(what.encode()).hexdigest()
        return self._folder / digest[:2] / digest

    def _keep(self, path: Path, content: bytes) -> None:
        # An offer only: what a full or broken disk does not take is read again from where it is.
        size = len(content) + _CHECKSUM_BYTES
        with contextlib.suppress(OSError), self._room.reserve(size, now=time.time()) as fits:
            if not fits:
                return
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = path.with_name(f"{TEMPORARY}{secrets.token_hex(8)}")
            try:
                with temporary.open("wb") as file:
                    file.write(_checksum(content))
                    file.write(content)
                # Not synced: the checksum tells what a power failure left of it.
                temporary.rename(path)
            except OSError:
                temporary.unlink(missing_ok=True)
                raise


def _load(path: Path) -> bytes | None:
    try:
        with path.open("rb") as file:
            checksum, content = file.read(_CHECKSUM_BYTES), file.read()
        if checksum != _checksum(content):
            path.unlink(missing_ok=True)
            return None
        os.utime(path)
    except OSError:
        return None
    return content


def _checksum(content: bytes) -> bytes:
    return zlib.crc32(content).to_bytes(_CHECKSUM_BYTES, "big")
