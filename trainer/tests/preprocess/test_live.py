"""Latents that are kept while training: found again at once by whoever made them, and soon by the others."""

from __future__ import annotations

import errno
import threading
from typing import TYPE_CHECKING

import numpy as np
import pytest

from oarlock_api.data import Compression
from oarlock_local import patience
from oarlock_trainer.data.records import pack
from oarlock_trainer.data.shards import Shard
from oarlock_trainer.preprocess.on_demand import OnDemandCache
from oarlock_trainer.runtime.errors import StorageError
from oarlock_trainer.storage.local import LocalFiles

if TYPE_CHECKING:
    from pathlib import Path

    from oarlock_trainer.storage.files import FileEntry

MIB = 1 << 20
SHAPE = (16, 256, 256)
"""Two MiB."""


class Stuck(LocalFiles):
    """Writes nothing until it is let go."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, field="f")
        self.asked, self.go = threading.Event(), threading.Event()

    def write(self, name: str, content: bytes) -> None:
        self.asked.set()
        assert self.go.wait(patience.SECONDS)
        super().write(name, content)


class Full(LocalFiles):
    """Has no room."""

    def write(self, name: str, content: bytes) -> None:
        raise OSError(errno.ENOSPC, f"no space left for {len(content)} bytes", name)


class Counting(LocalFiles):
    """Counts listings."""

    listings = 0

    def list(self) -> list[FileEntry]:
        self.listings += 1
        return super().list()


def key(number: int) -> bytes:
    return number.to_bytes(16, "little")


def latents(number: int) -> tuple[np.ndarray, tuple[int, int, int]]:
    return np.full(SHAPE, number, dtype=np.uint16).reshape(-1), SHAPE


def test_shards_grow_to_32_mib_and_what_was_published_is_found(tmp_path: Path) -> None:
    kept = OnDemandCache(LocalFiles(tmp_path, field="f"), Compression.NONE)
    for number in range(48):
        kept.add(key(number), latents(number))
    kept.close()
    assert sorted(path.stat().st_size // MIB for path in tmp_path.glob("*.bin")) == [4, 4, 8, 16, 32, 32]
    for number in range(48):
        read = kept.read(key(number))
        assert read is not None
        assert (read[0] == number).all()
    assert kept.read(key(48)) is None


def test_the_place_is_listed_once_a_minute_and_what_others_published_is_then_found(tmp_path: Path) -> None:
    now = 0.0
    files = Counting(tmp_path, field="f")
    kept = OnDemandCache(files, Compression.NONE, clock=lambda: now)
    theirs = Shard()
    theirs.append(pack(key(100), *latents(100), Compression.NONE))
    theirs.publish(files)
    for number in range(4):
        kept.add(key(number), latents(number))
    kept.publish()
    assert (files.listings, kept.read(key(100))) == (1, None)
    now = 60.0
    for number in range(4, 8):
        kept.add(key(number), latents(number))
    kept.publish()
    assert files.listings == 2
    assert kept.read(key(100)) is not None


def test_what_is_being_published_is_read_and_added_to_meanwhile(tmp_path: Path) -> None:
    files = Stuck(tmp_path)
    kept = OnDemandCache(files, Compression.NONE)
    for number in range(3):  # two are a shard
        kept.add(key(number), latents(number))
    assert files.asked.wait(patience.SECONDS)
    for number in range(3):
        read = kept.read(key(number))
        assert read is not None
        assert (read[0] == number).all()
    assert not list(tmp_path.iterdir())
    files.go.set()
    kept.close()
    assert len(list(tmp_path.glob("*.npy"))) == 2
    assert kept.read(key(2)) is not None


def test_latents_that_two_threads_made_are_kept_once(tmp_path: Path) -> None:
    kept = OnDemandCache(LocalFiles(tmp_path, field="f"), Compression.NONE)
    for _ in range(2):
        kept.add(key(1), latents(1))
    kept.close()
    (index,) = tmp_path.glob("*.npy")
    assert len(np.load(index)) == 1


def test_a_place_without_room_ends_the_work_of_whoever_adds_next(tmp_path: Path) -> None:
    kept = OnDemandCache(Full(tmp_path, field="f"), Compression.NONE)
    kept.add(key(0), latents(0))
    kept.add(key(1), latents(1))
    with pytest.raises(StorageError, match="no space left"):
        kept.publish()
