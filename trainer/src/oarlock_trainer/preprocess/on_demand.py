"""Latents of imageEmbeds.mode OnDemand, kept where the next pass and the other ranks find them.

Each rank publishes shards of its own, small ones at first, so that the others soon find in them what they would have
encoded again. That is done in the background: a batch waits only where its rank encodes faster than the place takes.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import TYPE_CHECKING

from oarlock_trainer.data.fresh import Fresh
from oarlock_trainer.data.records import pack, unpack
from oarlock_trainer.data.shards import Shard, ShardFile
from oarlock_trainer.runtime.errors import storage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future

    import numpy as np

    from oarlock_api.data import Compression
    from oarlock_trainer.data.records import Record
    from oarlock_trainer.storage.files import Files

Latents = tuple["np.ndarray", tuple[int, int, int]]
"""Flat uint16 (the bits of bfloat16), and (channels, height, width)."""

_FIRST_BYTES, _MOST_BYTES = 4 << 20, 32 << 20
"""Of a shard. A rank that is killed loses two at most, so none is as large as those that are made before training."""
_LOOK_SECONDS = 60.0
"""To list a place takes a request for each thousand of its files."""


class OnDemandCache:
    """What one rank keeps of a place: the shard that it fills, and what all ranks have published since it began.

    Safe to use from several threads: reading waits neither for a shard to be published nor for the place to be listed.
    """

    def __init__(self, files: Files, compression: Compression, clock: Callable[[], float] = time.monotonic) -> None:
        self._files = files
        self._compression = compression
        self._clock = clock
        self._fresh = Fresh(files)
        self._looked = clock()
        self._adding = Lock()
        self._shard, self._keys = Shard(), list[bytes]()
        self._waiting: dict[bytes, Record] = {}
        self._handed_over = 0
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="publish")
        self._publishing: Future[None] | None = None

    def read(self, key: bytes) -> Latents | None:
        """Latents that were kept, None where there are none."""
        if (record := self._waiting.get(key)) is not None:
            return unpack(record.data, size=record.size, coding=record.coding), record.shape
        return self._fresh.read(key)

    def add(self, key: bytes, latents: Latents) -> None:
        """Keep latents; hands a shard over once it is as large as all before it, or full. Raises what publishing raised.

        Waits while the one before is not published.
        """
        record = pack(key, *latents, self._compression)
        with self._adding:
            if key in self._waiting:
                return
            self._waiting[key] = record
            self._keys.append(key)
            self._shard.append(record)
            if self._shard.size >= min(max(self._handed_over, _FIRST_BYTES), _MOST_BYTES):
                self._hand_over()

    def publish(self) -> None:
        """Publish what was kept since the last shard, and wait for it."""
        with self._adding:
            if len(self._shard):
                self._hand_over()
            self._published()

    def close(self) -> None:
        """Publish the rest."""
        try:
            self.publish()
        finally:
            self._pool.shutdown()

    def _hand_over(self) -> None:
        self._published()
        self._publishing = self._pool.submit(self._publish, self._shard, self._keys)
        self._handed_over += self._shard.size
        self._shard, self._keys = Shard(), []

    def _published(self) -> None:
        if self._publishing:
            self._publishing.result()

    def _publish(self, shard: Shard, keys: Sequence[bytes]) -> None:
        with storage(f"writing latents to {self._files.where}"):
            name = shard.publish(self._files)
        self._fresh.take(ShardFile(name, "", shard.size))
        for key in keys:  # found among the fresh ones from now on
            del self._waiting[key]
        if self._clock() - self._looked >= _LOOK_SECONDS:
            self._fresh.look()
            self._looked = self._clock()
