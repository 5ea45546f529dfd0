"""Latents that are kept while training: found again at once by whoever made them, and soon by the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from oarlock_api.data import Compression
from oarlock_trainer.data.records import pack
from oarlock_trainer.data.shards import Shard
from oarlock_trainer.preprocess.live import Kept
from oarlock_trainer.storage.local import LocalFiles

if TYPE_CHECKING:
    from pathlib import Path

    from oarlock_trainer.storage.files import Entry

MIB = 1 << 20
SHAPE = (16, 256, 256)
"""Two MiB."""


class Counting(LocalFiles):
    """Counts listings."""

    listings = 0

    def list(self) -> list[Entry]:
        self.listings += 1
        return super().list()


def key(number: int) -> bytes:
    return number.to_bytes(16, "little")


def latents(number: int) -> tuple[np.ndarray, tuple[int, int, int]]:
    return np.full(SHAPE, number, dtype=np.uint16).reshape(-1), SHAPE


def test_shards_grow_to_32_mib_and_what_was_published_is_found(tmp_path: Path) -> None:
    kept = Kept(LocalFiles(tmp_path, field="f"), Compression.NONE)
    for number in range(48):
        kept.add(key(number), latents(number))
    assert sorted(path.stat().st_size // MIB for path in tmp_path.glob("*.bin")) == [4, 4, 8, 16, 32, 32]
    for number in range(48):
        read = kept.read(key(number))
        assert read is not None
        assert (read[0] == number).all()
    assert kept.read(key(48)) is None


def test_the_place_is_listed_once_a_minute_and_what_others_published_is_then_found(tmp_path: Path) -> None:
    now = 0.0
    files = Counting(tmp_path, field="f")
    kept = Kept(files, Compression.NONE, clock=lambda: now)
    theirs = Shard()
    theirs.append(pack(key(100), *latents(100), Compression.NONE))
    theirs.publish(files)
    for number in range(4):
        kept.add(key(number), latents(number))
    assert (files.listings, kept.read(key(100))) == (1, None)
    now = 60.0
    for number in range(4, 8):
        kept.add(key(number), latents(number))
    assert files.listings == 2
    assert kept.read(key(100)) is not None
