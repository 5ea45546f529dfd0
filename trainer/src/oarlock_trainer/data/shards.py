"""Embeddings on disk: many records in one shard file, found through an index of key, place, shape and checksum.

    shard-<name>.bin   records end to end: bfloat16 values, little-endian
    shard-<name>.npy   the index, one row per record

A shard is published by renaming first the data, then the index; a reader looks at indices only, so half-written shards
do not exist for it. Keys say what a record was made from (preprocess.keys), so several jobs and ranks may write into one
folder at once: the worst case is one record twice.
"""

from __future__ import annotations

import hashlib
import io
import os
import zlib
from typing import TYPE_CHECKING, Self

import numpy as np

from oarlock_trainer.durable import TEMPORARY, sync_folder, write_bytes
from oarlock_trainer.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

INDEX = np.dtype([("key", "<u8", 2), ("offset", "<u8"), ("length", "<u4"), ("checksum", "<u4"), ("shape", "<u4", 3)])
"""One record: a 128-bit key, the place in the shard in bytes, CRC-32 of the bytes, and what `shape` means to its user."""

SHARD_BYTES = 1 << 30
"""A shard is closed at this size: large enough for sequential storage, small enough to lose one."""


class ShardWriter:
    """Collects records into shards and publishes each when it is full, and the last one on `close`."""

    def __init__(self, folder: Path, *, owner: str, shard_bytes: int = SHARD_BYTES) -> None:
        """`owner` makes temporary names unique: no two processes may share one."""
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._temporary = folder / f"{TEMPORARY}{owner}.bin"
        self._shard_bytes = shard_bytes
        self._rows: list[tuple[tuple[int, int], int, int, int, tuple[int, int, int]]] = []
        self._file: io.BufferedWriter | None = None
        self._size = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Publish what is complete, also when the work is cut short: it need not be done again."""
        self.close()

    def append(self, key: str, values: np.ndarray, shape: tuple[int, int, int]) -> None:
        """Add one record: `values` as uint16 (the bits of bfloat16), any shape."""
        data = np.ascontiguousarray(values, dtype="<u2").tobytes()
        if self._file is None:
            self._file = self._temporary.open("wb")
        self._file.write(data)
        self._rows.append((_halves(key), self._size, len(data), zlib.crc32(data), shape))
        self._size += len(data)
        if self._size >= self._shard_bytes:
            self.close()

    def close(self) -> None:
        """Publish what was appended since the last shard."""
        if self._file is None:
            return
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        index = np.array(self._rows, dtype=INDEX)
        name = f"shard-{hashlib.sha256(index.tobytes()).hexdigest()[:32]}"
        self._temporary.rename(self._folder / f"{name}.bin")
        sync_folder(self._folder)
        body = io.BytesIO()
        np.save(body, index, allow_pickle=False)
        write_bytes(self._folder / f"{name}.npy", body.getvalue())
        self._file, self._rows, self._size = None, [], 0


class ShardReader:
    """All published records of a folder. About 40 bytes a record."""

    def __init__(self, folder: Path) -> None:
        """Reads the indices that are there now. A shard without its full data counts as not there."""
        self._folder = folder
        self._names: list[str] = []
        self._files: dict[int, int] = {}
        parts: list[np.ndarray] = []
        shards: list[np.ndarray] = []
        for path in sorted(folder.glob("shard-*.npy")) if folder.is_dir() else []:
            index = _read_index(path)
            if index is not None:
                shards.append(np.full(len(index), len(self._names), dtype=np.uint32))
                parts.append(index)
                self._names.append(path.stem)
        index = np.concatenate(parts) if parts else np.empty(0, dtype=INDEX)
        owner = np.concatenate(shards) if shards else np.empty(0, dtype=np.uint32)
        order = np.lexsort((index["key"][:, 1], index["key"][:, 0]))
        self._index, self._owner = index[order], owner[order]

    def find(self, keys: Iterable[str]) -> np.ndarray:
        """Row of each key, -1 where there is none."""
        wanted = np.array([_halves(key) for key in keys], dtype=np.uint64).reshape(-1, 2)
        rows = np.full(len(wanted), -1, dtype=np.int64)
        if not len(self._index):
            return rows
        high, low = self._index["key"][:, 0], self._index["key"][:, 1]
        place = np.searchsorted(high, wanted[:, 0])
        for number, row in enumerate(place):
            # Two keys with one 64-bit half in common are rare enough for a loop.
            while row < len(high) and high[row] == wanted[number, 0]:
                if low[row] == wanted[number, 1]:
                    rows[number] = row
                    break
                row += 1  # noqa: PLW2901
        return rows

    def read(self, row: int) -> tuple[np.ndarray, tuple[int, int, int]]:
        """Record of a row: values as uint16 (flat, the bits of bfloat16), and its shape.

        Raises StorageError where the bytes are not those that were published.
        """
        entry, shard = self._index[row], int(self._owner[row])
        if shard not in self._files:
            self._files[shard] = os.open(self._folder / f"{self._names[shard]}.bin", os.O_RDONLY | os.O_CLOEXEC)
        data = os.pread(self._files[shard], int(entry["length"]), int(entry["offset"]))
        if zlib.crc32(data) != entry["checksum"]:
            name = self._folder / self._names[shard]
            raise StorageError(
                f"{name}.bin is damaged at byte {entry['offset']}: delete {name}.npy and {name}.bin, "
                "the records are then made anew"
            )
        first, second, third = (int(side) for side in entry["shape"])
        return np.frombuffer(data, dtype="<u2"), (first, second, third)


def _halves(key: str) -> tuple[int, int]:
    return int(key[:16], 16), int(key[16:32], 16)


def _read_index(path: Path) -> np.ndarray | None:
    try:
        index = np.load(path, allow_pickle=False)
        size = path.with_suffix(".bin").stat().st_size
    except (OSError, ValueError, EOFError):
        return None
    if index.dtype != INDEX or not len(index):
        return None
    needed = int((index["offset"] + index["length"]).max())
    return index if size >= needed else None
