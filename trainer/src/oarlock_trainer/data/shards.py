"""Embeddings in a place for files: many records in one shard, found through an index of key, position and checksum.

    shard-<name>.bin   records end to end
    shard-<name>.npy   the index, one row per record

The data are written first, then the index; readers look at indices only, so half-written shards do not exist for them. A
shard's name is the digest of its index, which holds the keys, lengths and checksums of all its records: the same work
done again gives the same files, and two jobs whose GPUs disagree in the last bit never mix theirs. The worst that writers
into one place can do to one another is to store a record twice.
"""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from oarlock_trainer.data.records import Coding, checksum, unpack
from oarlock_trainer.runtime.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from oarlock_trainer.data.records import Record
    from oarlock_trainer.storage.files import FileEntry, Files

POSITION = np.dtype(
    [("offset", "<u8"), ("length", "<u4"), ("size", "<u4"), ("checksum", "<u4"), ("shape", "<u4", 3), ("coding", "u1")]
)
"""Where a record is in its shard, in bytes; its bytes before compression; CRC-32 of the stored ones; what they are."""

INDEX = np.dtype([("key", "<u8", 2), *((name, POSITION[name]) for name in POSITION.names or ())])

SHARD_BYTES = 256 << 20
"""Large enough for sequential storage and for few requests, small enough to be held in memory, and to be lost."""

_DATA, _INDEX, _PREFIX = ".bin", ".npy", "shard-"


@dataclass(frozen=True, slots=True, order=True)
class ShardFile:
    """A published shard as a listing shows it: its name, the index's version and the bytes of its data."""

    name: str
    version: str
    size: int


class Shard:
    """A shard that is being made, in memory."""

    def __init__(self) -> None:
        self._records: list[tuple[bytes, tuple[int, int, int, int, tuple[int, int, int], int]]] = []
        self._data = io.BytesIO()
        self.size = 0

    def __len__(self) -> int:
        return len(self._records)

    def append(self, record: Record) -> None:
        """Add one record."""
        position = (self.size, len(record.data), record.size, record.checksum, record.shape, int(record.coding))
        self._records.append((record.key, position))
        self._data.write(record.data)
        self.size += len(record.data)

    def publish(self, files: Files) -> str:
        """Store all records; returns the shard's name. There must be one at least."""
        index = self._index()
        name = _PREFIX + hashlib.sha256(index.tobytes()).hexdigest()[:32]
        files.write(name + _DATA, self._data.getvalue())  # which copies nothing
        body = io.BytesIO()
        np.save(body, index, allow_pickle=False)
        files.write(name + _INDEX, body.getvalue())
        return name

    def _index(self) -> np.ndarray:
        index = np.zeros(len(self), dtype=INDEX)
        index["key"] = np.frombuffer(b"".join(key for key, _ in self._records), dtype="<u8").reshape(-1, 2)
        for number, name in enumerate(POSITION.names or ()):
            index[name] = [position[number] for _, position in self._records]
        return index


def published(entries: Iterable[FileEntry]) -> list[ShardFile]:
    """The shards of a listing, sorted by name: those with data and index."""
    entries = list(entries)
    sizes = {entry.name.removesuffix(_DATA): entry.size for entry in entries if entry.name.endswith(_DATA)}
    indices = {entry.name.removesuffix(_INDEX): entry.version for entry in entries if entry.name.endswith(_INDEX)}
    return [
        ShardFile(name, version, sizes[name])
        for name, version in sorted(indices.items())
        if name.startswith(_PREFIX) and name in sizes
    ]


def read_index(files: Files, shard: ShardFile) -> np.ndarray | None:
    """A shard's index, or None where it or its data are not whole, or of a kind that this version does not read."""
    try:
        index: np.ndarray = np.load(io.BytesIO(files.read(shard.name + _INDEX)), allow_pickle=False)
    except (FileNotFoundError, ValueError, EOFError):
        return None
    if index.dtype != INDEX or not len(index) or int(index["coding"].max()) > max(Coding):
        return None
    return index if shard.size >= int((index["offset"] + index["length"]).max()) else None


def read_record(files: Files, shard: str, position: np.void) -> tuple[np.ndarray, tuple[int, int, int]]:
    """A record's values as flat uint16 (the bits of bfloat16), and its shape. `position` has POSITION's fields.

    Raises StorageError where the bytes are not those that were published.
    """
    first, second, third = (int(side) for side in position["shape"])
    offset, length = int(position["offset"]), int(position["length"])
    try:
        data = files.read(shard + _DATA, offset, length)
    except FileNotFoundError as error:
        raise StorageError(
            f"{shard}{_DATA} is gone from {files.where} while it is in use: start again, its records are then made anew"
        ) from error
    if len(data) != length or checksum(data) != int(position["checksum"]):
        raise StorageError(
            f"{shard}{_DATA} in {files.where} is damaged at byte {offset}: delete {shard}{_INDEX} and {shard}{_DATA} "
            "there, their records are then made anew"
        )
    values = unpack(data, size=int(position["size"]), coding=Coding(int(position["coding"])))
    return values, (first, second, third)
