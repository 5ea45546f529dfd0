"""Where each row's embedding lies: resolved once for all ranks, over several stores, and again when anything changed."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oarlock_api.data import Compression
from oarlock_trainer.data.embedding_index import EmbeddingIndex, forget, resolve
from oarlock_trainer.data.matching import SortedKeys, firsts
from oarlock_trainer.data.records import pack
from oarlock_trainer.data.shards import Shard
from oarlock_trainer.runtime.errors import StorageError
from oarlock_trainer.storage.local import LocalFiles

KEYS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=40)
"""Few different halves: what is rare among real keys is frequent here."""


def array(keys: list[tuple[int, int]]) -> np.ndarray:
    return np.array(keys, dtype=np.uint64).reshape(-1, 2)


def numbers(*wanted: int) -> np.ndarray:
    return array([(number, 7) for number in wanted])


def store(folder: Path, *wanted: int) -> LocalFiles:
    """A store, with one more shard of these records."""
    files, shard = LocalFiles(folder, field="data.imageEmbeds.path"), Shard()
    for number in wanted:
        values = np.full(4, number, dtype=np.uint16)
        shard.append(pack(numbers(number).tobytes(), values, (number, 1, 4), Compression.NONE))
    if len(shard):
        shard.publish(files)
    return files


def ask(folder: Path, stores: list[LocalFiles], *wanted: int, asked: str = "table") -> Path:
    return resolve(folder / "places", "latents", asked=asked, keys=lambda: numbers(*wanted), stores=stores)


@given(KEYS, KEYS)
def test_a_key_is_found_where_there_is_an_equal_one_and_only_there(
    needles: list[tuple[int, int]], keys: list[tuple[int, int]]
) -> None:
    for needle, found in zip(needles, SortedKeys(array(keys)).find(array(needles)).tolist(), strict=True):
        assert (needle in keys) == (found >= 0)
        assert found < 0 or keys[found] == needle


@given(KEYS)
def test_the_first_of_equal_keys_is_the_first(keys: list[tuple[int, int]]) -> None:
    assert firsts(array(keys)).tolist() == [key not in keys[:number] for number, key in enumerate(keys)]


def test_rows_find_their_records_in_any_of_the_stores(tmp_path: Path) -> None:
    stores = [store(tmp_path / "a", 1, 2, 3), store(tmp_path / "b", 4, 5), store(tmp_path / "none")]
    store(tmp_path / "a", 6)
    places = EmbeddingIndex(ask(tmp_path, stores, 5, 9, 1, 1, 6), stores)
    assert len(places) == 5
    assert [places.has(row) for row in range(5)] == [True, False, True, True, True]
    for row, number in ((0, 5), (2, 1), (3, 1), (4, 6)):
        values, shape = places.read(row)
        assert (values.tolist(), shape) == ([number] * 4, (number, 1, 4))
    with pytest.raises(LookupError, match="row 1"):
        places.read(1)
    assert places.extent(np.ones(5, dtype=bool)) == (3, 3, 24)
    assert places.extent(np.arange(5) == 0) == (1, 1, 8)


def test_without_any_shard_nothing_is_stored(tmp_path: Path) -> None:
    stores = [store(tmp_path / "a")]
    places = EmbeddingIndex(ask(tmp_path, stores, 1, 2), stores)
    assert [places.has(0), places.has(1)] == [False, False]
    assert places.extent(np.ones(2, dtype=bool)) == (0, 0, 0)


def test_the_same_question_is_answered_once_and_another_one_anew(tmp_path: Path) -> None:
    stores = [store(tmp_path / "a", 1)]
    first = ask(tmp_path, stores, 1, 2)

    def keys() -> np.ndarray:
        raise AssertionError("asked again")

    assert resolve(tmp_path / "places", "latents", asked="table", keys=keys, stores=stores) == first
    assert ask(tmp_path, stores, 1, 2, asked="another table") != first
    store(tmp_path / "a", 2)
    grown = ask(tmp_path, stores, 1, 2)
    assert grown != first
    assert EmbeddingIndex(grown, stores).has(1)
    assert not EmbeddingIndex(first, stores).has(1)


def test_a_shard_that_is_torn_counts_as_not_there(tmp_path: Path) -> None:
    stores = [store(tmp_path / "a", 1, 2), store(tmp_path / "b", 2)]
    data = next((tmp_path / "a").glob("*.bin"))
    data.write_bytes(data.read_bytes()[:-1])
    places = EmbeddingIndex(ask(tmp_path, stores, 1, 2), stores)
    assert [places.has(0), places.has(1)] == [False, True]


def test_damage_after_the_answer_is_an_error_that_says_what_to_delete(tmp_path: Path) -> None:
    stores = [store(tmp_path / "a", 1, 2)]
    places = EmbeddingIndex(ask(tmp_path, stores, 2), stores)
    data = next((tmp_path / "a").glob("*.bin"))
    data.write_bytes(bytes(len(data.read_bytes())))
    with pytest.raises(StorageError, match=rf"{data.stem}\.bin in {tmp_path / 'a'} is damaged at byte 8: delete"):
        places.read(0)


def test_an_answer_that_was_half_removed_is_made_again(tmp_path: Path) -> None:
    stores = [store(tmp_path / "a", 1)]
    answer = ask(tmp_path, stores, 1)
    (answer / "shards.json").unlink()
    assert ask(tmp_path, stores, 1) == answer
    assert EmbeddingIndex(answer, stores).has(0)


def test_an_answer_whose_removal_was_cut_off_at_any_file_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores = [store(tmp_path / "a", 1)]
    old = ask(tmp_path, stores, 1)
    ask(tmp_path, stores, 1, asked="another table")

    def cut_off(folder: Path, **_: object) -> None:
        (folder / "rows.npy").unlink()
        raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "rmtree", cut_off)
    with pytest.raises(KeyboardInterrupt):
        forget(tmp_path / "places")
    monkeypatch.undo()
    assert ask(tmp_path, stores, 1) == old
    assert EmbeddingIndex(old, stores).has(0)


def test_of_each_kind_the_newest_answer_stays(tmp_path: Path) -> None:
    stores = [store(tmp_path / "a", 1)]
    old = ask(tmp_path, stores, 1)
    store(tmp_path / "a", 2)
    new = ask(tmp_path, stores, 1)
    texts = resolve(tmp_path / "places", "texts", asked="table", keys=lambda: numbers(3), stores=stores)
    (tmp_path / "places" / ".tmp-left-behind").mkdir()
    forget(tmp_path / "places")
    assert not old.exists()
    assert {path.name for path in (tmp_path / "places").iterdir()} == {new.name, texts.name}
    forget(tmp_path / "absent")
