"""Packed embeddings: found by key, checked by checksum, published whole or not at all."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np
import pytest

from oarlock_trainer.data.shards import ShardReader, ShardWriter
from oarlock_trainer.errors import StorageError

if TYPE_CHECKING:
    from pathlib import Path


def key(number: int) -> str:
    return hashlib.sha256(str(number).encode()).hexdigest()[:32]


def values(number: int) -> np.ndarray:
    return np.arange(number, number + 12 + number % 5, dtype=np.uint16)


def write(folder: Path, numbers: range, *, owner: str = "a", shard_bytes: int = 1 << 20) -> None:
    with ShardWriter(folder, owner=owner, shard_bytes=shard_bytes) as writer:
        for number in numbers:
            writer.append(key(number), values(number), (number, 2, 3))


def test_records_of_several_writers_and_shards_are_found_by_key(tmp_path: Path) -> None:
    write(tmp_path, range(50), owner="a", shard_bytes=200)
    write(tmp_path, range(50, 80), owner="b")
    reader = ShardReader(tmp_path)
    rows = reader.find(key(number) for number in range(80))
    assert (rows >= 0).all()
    for number, row in enumerate(rows):
        found, shape = reader.read(int(row))
        assert np.array_equal(found, values(number))
        assert shape == (number, 2, 3)


def test_a_key_that_is_not_there_is_minus_one(tmp_path: Path) -> None:
    write(tmp_path, range(3))
    assert list(ShardReader(tmp_path).find([key(1), key(99)]) >= 0) == [True, False]


def test_an_empty_or_absent_folder_holds_nothing(tmp_path: Path) -> None:
    assert list(ShardReader(tmp_path / "absent").find([key(1)])) == [-1]


def test_what_was_not_published_does_not_exist(tmp_path: Path) -> None:
    writer = ShardWriter(tmp_path, owner="killed")
    writer.append(key(1), values(1), (1, 2, 3))
    assert list(ShardReader(tmp_path).find([key(1)])) == [-1]


def test_data_without_index_and_index_without_data_do_not_exist(tmp_path: Path) -> None:
    write(tmp_path, range(5))
    index = next(tmp_path.glob("*.npy"))
    data = index.with_suffix(".bin")
    kept = data.read_bytes()
    data.write_bytes(kept[:-1])
    assert list(ShardReader(tmp_path).find([key(1)])) == [-1]
    data.write_bytes(kept)
    for cut in range(0, index.stat().st_size, 37):
        body = index.read_bytes()
        index.write_bytes(body[:cut])
        assert list(ShardReader(tmp_path).find([key(1)])) == [-1]
        index.write_bytes(body)
    assert ShardReader(tmp_path).find([key(1)])[0] >= 0


def test_a_damaged_record_is_an_error_that_says_what_to_delete(tmp_path: Path) -> None:
    write(tmp_path, range(5))
    data = next(tmp_path.glob("*.bin"))
    body = bytearray(data.read_bytes())
    body[3] ^= 1
    data.write_bytes(body)
    reader = ShardReader(tmp_path)
    with pytest.raises(StorageError, match=f"delete .*{data.stem}"):
        reader.read(int(reader.find([key(0)])[0]))


def test_publishing_the_same_records_again_changes_nothing(tmp_path: Path) -> None:
    write(tmp_path, range(5))
    before = sorted(path.name for path in tmp_path.iterdir())
    write(tmp_path, range(5), owner="again")
    assert sorted(path.name for path in tmp_path.iterdir()) == before
