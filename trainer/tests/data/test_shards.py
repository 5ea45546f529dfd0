"""Packed embeddings: found through indices, checked by checksum, published whole or not at all, by several at once."""

from __future__ import annotations

import multiprocessing
import tracemalloc
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oarlock_api.data import Compression
from oarlock_trainer.data.fresh import Fresh
from oarlock_trainer.data.records import pack, unpack
from oarlock_trainer.data.shards import Shard, published, read_index, read_record
from oarlock_trainer.runtime.errors import StorageError
from oarlock_trainer.storage.local import LocalFiles

if TYPE_CHECKING:
    from oarlock_trainer.data.shards import ShardFile

NONE = Compression.NONE


def key(number: int) -> bytes:
    return number.to_bytes(16, "little")


def values(number: int) -> np.ndarray:
    return np.arange(number, number + 12 + number % 5, dtype=np.uint16)


def files(folder: Path) -> LocalFiles:
    return LocalFiles(folder, field="data.imageEmbeds.path")


def write(folder: Path, numbers: range, compression: Compression = NONE) -> str:
    shard = Shard()
    for number in numbers:
        shard.append(pack(key(number), values(number), (number, 2, 3), compression))
    return shard.publish(files(folder))


def found(folder: Path) -> list[ShardFile]:
    """Shards that a reader takes for whole."""
    place = files(folder)
    return [shard for shard in published(place.list()) if read_index(place, shard) is not None]


def read_all(folder: Path) -> dict[bytes, tuple[list[int], tuple[int, int, int]]]:
    place, everything = files(folder), {}
    for shard in published(place.list()):
        index = read_index(place, shard)
        for entry in index if index is not None else []:
            read, shape = read_record(place, shard.name, entry)
            everything[entry["key"].tobytes()] = (read.tolist(), shape)
    return everything


def expected(numbers: range) -> dict[bytes, tuple[list[int], tuple[int, int, int]]]:
    return {key(number): (values(number).tolist(), (number, 2, 3)) for number in numbers}


@given(
    st.lists(st.integers(0, 2**16 - 1), min_size=1, max_size=300),
    st.sampled_from(list(Compression)),
)
def test_a_record_gives_back_its_values_whatever_the_compression(numbers: list[int], compression: Compression) -> None:
    record = pack(key(1), np.array(numbers, dtype=np.uint16), (1, 1, len(numbers)), compression)
    assert unpack(record.data, size=record.size, coding=record.coding).tolist() == numbers
    assert record.size == 2 * len(numbers)


def test_latents_become_smaller_by_compression() -> None:
    normal = np.random.default_rng(0).standard_normal(1 << 18).astype(np.float32)
    bfloat16 = (normal.view(np.uint32) >> 16).astype(np.uint16)
    for compression in (Compression.GZIP, Compression.ZSTD):
        assert len(pack(key(1), bfloat16, (1, 1, 1), compression).data) < 0.75 * bfloat16.nbytes


def test_records_of_several_shards_and_compressions_are_read_side_by_side(tmp_path: Path) -> None:
    for number, compression in enumerate(Compression):
        write(tmp_path, range(number * 20, number * 20 + 20), compression)
    assert read_all(tmp_path) == expected(range(60))


def test_a_shard_is_in_memory_once_also_while_it_is_published(tmp_path: Path) -> None:
    shard, size = Shard(), 1 << 18
    tracemalloc.start()
    for number in range(64):
        shard.append(pack(key(number), np.full(size // 2, number, dtype=np.uint16), (1, 1, size // 2), NONE))
    shard.publish(files(tmp_path))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 1.5 * shard.size
    assert len(found(tmp_path)) == 1


def test_the_same_records_give_the_same_files(tmp_path: Path) -> None:
    write(tmp_path, range(5))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    write(tmp_path, range(5))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_other_values_for_the_same_keys_are_another_shard_and_both_stay_whole(tmp_path: Path) -> None:
    write(tmp_path, range(3))
    shard = Shard()
    for number in range(3):
        shard.append(pack(key(number), values(number + 1), (number, 2, 3), NONE))
    shard.publish(files(tmp_path))
    assert len(found(tmp_path)) == 2
    assert read_all(tmp_path).keys() == expected(range(3)).keys()


def test_an_empty_or_absent_folder_holds_nothing(tmp_path: Path) -> None:
    assert published(files(tmp_path / "absent").list()) == []


def test_data_without_index_and_index_without_whole_data_do_not_exist(tmp_path: Path) -> None:
    name = write(tmp_path, range(5))
    data, index = tmp_path / f"{name}.bin", tmp_path / f"{name}.npy"
    kept, body = data.read_bytes(), index.read_bytes()
    data.write_bytes(kept[:-1])
    assert not found(tmp_path)
    data.unlink()
    assert not found(tmp_path)
    data.write_bytes(kept)
    for cut in range(0, len(body), 37):
        index.write_bytes(body[:cut])
        assert not found(tmp_path)
    index.unlink()
    assert not found(tmp_path)
    index.write_bytes(body)
    assert found(tmp_path)


def test_an_index_of_another_kind_is_none(tmp_path: Path) -> None:
    name = write(tmp_path, range(5))
    np.save(tmp_path / f"{name}.npy", np.zeros(3, dtype=[("key", "<u8", 2), ("offset", "<u8")]))
    assert not found(tmp_path)


def test_every_damaged_byte_is_an_error_that_says_what_to_delete(tmp_path: Path) -> None:
    name = write(tmp_path, range(1))
    data, place = tmp_path / f"{name}.bin", files(tmp_path)
    (shard,) = published(place.list())
    index = read_index(place, shard)
    assert index is not None
    whole = data.read_bytes()
    for spot in range(len(whole)):
        body = bytearray(whole)
        body[spot] ^= 1
        data.write_bytes(body)
        with pytest.raises(StorageError, match=f"delete {name}.npy and {name}.bin"):
            read_record(place, name, index[0])


def test_data_that_became_shorter_or_went_away_in_use_are_errors(tmp_path: Path) -> None:
    name = write(tmp_path, range(5))
    place = files(tmp_path)
    index = read_index(place, published(place.list())[0])
    assert index is not None
    data = tmp_path / f"{name}.bin"
    data.write_bytes(data.read_bytes()[:-1])
    with pytest.raises(StorageError, match="is damaged"):
        read_record(place, name, index[-1])
    data.unlink()
    with pytest.raises(StorageError, match="is gone"):
        read_record(place, name, index[0])


def test_two_processes_may_write_one_cache_at_once(tmp_path: Path) -> None:
    """Half of their records are the same: each is stored once or twice, and all can be read at any moment."""

    def publish(first: int) -> None:
        for start in range(first, first + 40, 5):
            write(tmp_path, range(start, start + 5))

    writers = [multiprocessing.get_context("fork").Process(target=publish, args=(first,)) for first in (0, 20)]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        assert read_all(tmp_path).items() <= expected(range(60)).items()
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    assert read_all(tmp_path) == expected(range(60))


def test_fresh_records_are_those_that_were_published_since(tmp_path: Path) -> None:
    write(tmp_path, range(5))
    fresh = Fresh(files(tmp_path))
    write(tmp_path, range(5, 10))
    assert fresh.read(key(7)) is None
    fresh.look()
    assert fresh.read(key(2)) is None
    for number in range(5, 10):
        read = fresh.read(key(number))
        assert read is not None
        assert read[0].tolist() == values(number).tolist()
    write(tmp_path, range(10, 12))
    fresh.look()
    assert [fresh.read(key(number)) is not None for number in (4, 7, 11, 12)] == [False, True, True, False]
