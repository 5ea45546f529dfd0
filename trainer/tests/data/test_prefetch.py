"""Steps are read ahead in order; what reading raises, or never answers, comes out where a batch is taken."""

from __future__ import annotations

import itertools
import threading
import time
from typing import TYPE_CHECKING

import pytest
from dealing import (
    EFFECTIVE,
    loader,
    numbers,
    prepared,
    training,
)

from oarlock_trainer.data.embedding_index import EmbeddingIndex
from oarlock_trainer.data.prefetch import Prefetcher, patience
from oarlock_trainer.runtime.errors import StorageError

if TYPE_CHECKING:
    from pathlib import Path

    from oarlock_trainer.data.batches import StepBatch


def take_all(prefetch: Prefetcher) -> None:
    while True:
        prefetch.take()


def test_a_storage_that_answers_no_more_is_the_cause_before_anybody_calls_it_a_hang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, stuck = prepared(tmp_path), threading.Event()
    ahead = loader(data, training(batchSize=EFFECTIVE))
    began, looks = time.monotonic(), itertools.count()
    # Every look at the clock is twenty seconds later.
    prefetch = Prefetcher(ahead, 0, 20, clock=lambda: began + 20.0 * next(looks))
    prefetch.take()
    monkeypatch.setattr(EmbeddingIndex, "read", lambda _places, _index: stuck.wait())
    with pytest.raises(StorageError, match=r"data of step \d do not come: nothing was read for \d+ s"):
        take_all(prefetch)
    stuck.set()
    prefetch.close()


def test_the_thread_that_pins_batches_begins_by_choosing_its_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[tuple[str, str]] = []
    ahead = loader(prepared(tmp_path), training(batchSize=EFFECTIVE))

    def told(what: str) -> None:
        done.append((what, threading.current_thread().name))

    make = ahead.step

    def step(number: int) -> StepBatch:
        told("made")
        return make(number)

    monkeypatch.setattr(ahead, "step", step)
    prefetch = Prefetcher(ahead, 0, 1, begin=lambda: told("chosen"))
    prefetch.take()
    prefetch.close()
    assert done == [("chosen", "batches_0"), ("made", "batches_0")]


def test_a_storage_that_pauses_for_minutes_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, paused, read = prepared(tmp_path), threading.Event(), EmbeddingIndex.read
    ahead = loader(data, training(batchSize=EFFECTIVE))
    began, looks = time.monotonic(), itertools.count()

    def clock() -> float:
        """Every look at it is fifty seconds later; after some of them the storage is back."""
        look = next(looks)
        if look == back:
            paused.set()
        return began + 50.0 * look

    back = -1
    prefetch = Prefetcher(ahead, 0, 20, clock=clock)
    prefetch.take()
    back = next(looks) + 4
    monkeypatch.setattr(EmbeddingIndex, "read", lambda places, index: (paused.wait(), read(places, index))[1])
    try:
        for _ in range(8):
            prefetch.take()
        assert paused.is_set()
    finally:
        paused.set()
        prefetch.close()


def test_what_cannot_be_published_any_more_is_told_by_who_leaves_and_changes_nothing_of_how(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def close() -> None:
        raise StorageError("writing latents to /i: Stale file handle")

    ahead = loader(prepared(tmp_path), training(batchSize=EFFECTIVE))
    prefetch = Prefetcher(ahead, 0, 1)
    with monkeypatch.context() as patched:
        patched.setattr(ahead, "close", close)
        prefetch.leave()
    ahead.close()
    assert "not kept: writing latents to /i: Stale file handle" in capsys.readouterr().err


def test_a_job_that_is_patient_with_its_steps_is_with_its_storage() -> None:
    assert [patience(hang_seconds) for hang_seconds in (0, 60, 600)] == [180.0, 180.0, 600.0]


def test_steps_are_handed_out_in_order_and_only_to_the_last(tmp_path: Path) -> None:
    data = prepared(tmp_path)
    settings = training(batchSize=EFFECTIVE)
    expected = [numbers(loader(data, settings).step(step)) for step in range(3, 8)]
    ahead = Prefetcher(loader(data, settings), 3, 8)
    assert [numbers(ahead.take()) for _ in range(5)] == expected
    with pytest.raises(IndexError):
        ahead.take()
    ahead.close()


def test_what_reading_raised_comes_out_where_the_batch_is_taken(tmp_path: Path) -> None:
    data = prepared(tmp_path)
    settings = training(batchSize=EFFECTIVE)
    ahead = loader(data, settings)
    for shard in (tmp_path / "embeds").glob("*.bin"):
        shard.write_bytes(b"\0" * shard.stat().st_size)
    prefetch = Prefetcher(ahead, 0, 4)
    with pytest.raises(StorageError, match="shard-"):
        prefetch.take()
    prefetch.close()
