"""Where the embedding of each row is stored: found once by rank 0, mapped into memory by every rank.

    <kind>-<digest>/rows.npy      for each row the number of its record, -1 where nothing is stored
    <kind>-<digest>/records.bin   for each record its shard and its position in it
    <kind>-<digest>/shards.json   the shards by number, with the number of their store

The digest is that of what was asked for (the table) and what was there (the listings of all stores), so an unchanged job
that starts again finds its answer ready. Mapped pages are shared by a node's ranks and cost no memory of theirs.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import astuple
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from oarlock_trainer.data.matching import SortedKeys
from oarlock_trainer.data.shards import POSITION, published, read_index, read_record
from oarlock_trainer.runtime.atomic_write import TEMPORARY, sync_folder, sync_tree, write_json

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from oarlock_trainer.data.shards import ShardFile
    from oarlock_trainer.storage.files import Files

_PLACE = np.dtype([("shard", "<u4"), *((name, POSITION[name]) for name in POSITION.names or ())])
_ROWS, _RECORDS, _SHARDS = "rows.npy", "records.bin", "shards.json"
_READERS = 16
_VERSION = 1


class EmbeddingIndex:
    """The stored embeddings of all rows. Safe to read from several threads."""

    def __init__(self, folder: Path, stores: Sequence[Files]) -> None:
        """`folder` as `resolve` returned it, for the same `stores`. `digest` tells one answer from another."""
        self._stores = stores
        self.digest = folder.name
        self._shards: list[tuple[int, str]] = [
            (int(store), str(name)) for store, name in json.loads((folder / _SHARDS).read_bytes())
        ]
        self.records: np.ndarray = np.load(folder / _ROWS, mmap_mode="r")
        size = (folder / _RECORDS).stat().st_size
        self._places = np.memmap(folder / _RECORDS, dtype=_PLACE, mode="r") if size else np.empty(0, dtype=_PLACE)

    def __len__(self) -> int:
        return len(self.records)

    def has(self, index: int) -> bool:
        """Whether the embedding of a row is stored."""
        return bool(self.records[index] >= 0)

    def read(self, index: int) -> tuple[np.ndarray, tuple[int, int, int]]:
        """The embedding of a row: flat uint16 (the bits of bfloat16), and its shape.

        Raises StorageError, which says what to delete, where the bytes are not those that were stored, and LookupError
        where there are none.
        """
        record = int(self.records[index])
        if record < 0:
            raise LookupError(f"no embedding of row {index} is stored")
        place = self._places[record]
        store, name = self._shards[int(place["shard"])]
        return read_record(self._stores[store], name, place)

    def extent(self, rows: np.ndarray) -> tuple[int, int, int]:
        """Shards, records and stored bytes that hold the embeddings of `rows`, (rows,) bool; a shared one counts once."""
        used = np.zeros(len(self._places), dtype=bool)
        numbers = self.records[rows]
        used[numbers[numbers >= 0]] = True
        shards, lengths = self._places["shard"][used], self._places["length"][used]
        return len(np.unique(shards)), len(shards), int(lengths.sum(dtype=np.int64))


def resolve(folder: Path, kind: str, *, asked: str, keys: Callable[[], np.ndarray], stores: Sequence[Files]) -> Path:
    """Find the record of each key in any of the stores; returns the folder with the answer. Rank 0 only.

    `asked` names what is asked for: as long as it and the stores' listings are the same, the answer is not made again.
    `keys` gives them, (rows, 2) uint64. A record may lie in any store: its key says all about it.
    """
    listings = [published(store.list()) for store in stores]
    there = [[store.where, *map(astuple, shards)] for store, shards in zip(stores, listings, strict=True)]
    digest = hashlib.sha256(json.dumps([_VERSION, asked, there]).encode()).hexdigest()[:32]
    answer = folder / f"{kind}-{digest}"
    if not (answer / _SHARDS).exists():
        _write(answer, keys, stores, listings)
    return answer


def forget(folder: Path) -> None:
    """Remove all answers but the newest of each kind. Before any is opened: a mapped file is not to vanish."""
    answers = [path for path in folder.iterdir() if path.is_dir()] if folder.is_dir() else []
    answers.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    kept: set[str] = set()
    for path in answers:
        kind = path.name.partition("-")[0]
        if path.name.startswith(TEMPORARY) or kind in kept:
            # Whoever is cut off here leaves what counts as no answer: the folder's own files vanish in any order.
            with suppress(OSError):
                (path / _SHARDS).unlink(missing_ok=True)
                shutil.rmtree(path)
        kept.add(kind)


def _write(
    answer: Path, keys: Callable[[], np.ndarray], stores: Sequence[Files], listings: Sequence[Sequence[ShardFile]]
) -> None:
    temporary = answer.parent / f"{TEMPORARY}{answer.name}-{secrets.token_hex(8)}"
    temporary.mkdir(parents=True)
    stored, shards = _gather(temporary / _RECORDS, stores, listings)
    np.save(temporary / _ROWS, SortedKeys(stored).find(keys()), allow_pickle=False)
    write_json(temporary / _SHARDS, shards)
    sync_tree(temporary)
    if answer.exists():  # half of it: somebody was cut off while removing it
        shutil.rmtree(answer)
    temporary.rename(answer)
    sync_folder(answer.parent)


def _gather(
    path: Path, stores: Sequence[Files], listings: Sequence[Sequence[ShardFile]]
) -> tuple[np.ndarray, list[tuple[int, str]]]:
    """Write the positions of all records into one file; returns their keys, and the shards that they are in."""
    keys: list[np.ndarray] = [np.empty((0, 2), dtype="<u8")]
    shards: list[tuple[int, str]] = []
    with path.open("wb") as file, ThreadPoolExecutor(_READERS) as pool:
        for number, (store, listing) in enumerate(zip(stores, listings, strict=True)):
            for shard, index in zip(listing, pool.map(partial(read_index, store), listing), strict=True):
                if index is None:
                    continue
                places = np.empty(len(index), dtype=_PLACE)
                places["shard"] = len(shards)
                for name in POSITION.names or ():
                    places[name] = index[name]
                file.write(places.tobytes())
                keys.append(np.ascontiguousarray(index["key"]))
                shards.append((number, shard.name))
    return np.concatenate(keys), shards
