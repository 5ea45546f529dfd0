"""The last stages of encoding: records are packed, gathered into shards, and published, while the next are encoded.

Shards are published in order, one at a time: what is held in memory is the shard that is being filled and the one that is
being stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oarlock_trainer.data.records import Record, pack
from oarlock_trainer.runtime.errors import storage
from oarlock_trainer.runtime.stages import PendingResults, PipelineStage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future

    import numpy as np

    from oarlock_api.data import Compression
    from oarlock_trainer.data.shards import Shard
    from oarlock_trainer.storage.files import Files

_BATCHES = 4
"""Encoded batches that may wait to be packed and gathered: a batch of T5's is 67 MB."""


class Storing:
    """The stages pack, gather and publish, which the caller closes (Stages)."""

    def __init__(self, compression: Compression, *, threads: int, go_on: Callable[[], None]) -> None:
        """`threads` pack; one gathers and one publishes. `go_on` is called while waiting and may raise."""
        self.stages = (PipelineStage("pack", threads), PipelineStage("gather", 1), PipelineStage("publish", 1))
        self._compression = compression
        self._gathering: PendingResults[None] = PendingResults(_BATCHES, go_on)
        self._publishing: PendingResults[None] = PendingResults(1, go_on)
        self._last: list[Future[None]] = []

    def pack(
        self, key: bytes, shape: tuple[int, int, int], values: Callable[[], np.ndarray | None]
    ) -> Future[Record | None]:
        """Make a record in the background; `values` is called there, None = there is to be no record."""

        def work() -> Record | None:
            found = values()
            return None if found is None else pack(key, found, shape, self._compression)

        return self.stages[0].submit(work)

    def put(self, shard: Shard, records: Sequence[Future[Record | None]]) -> None:
        """Append records to a shard, after all that were put before."""

        def work(*made: Record | None) -> None:
            for record in made:
                if record is not None:
                    shard.append(record)

        self._last = [self.stages[1].submit(work, after=records)]
        self._gathering.put(self._last[0])

    def publish(self, shard: Shard, files: Files) -> None:
        """Publish a shard once it has all that was put. Waits while the one before the last is not published."""

        def work(*_: None) -> None:
            if len(shard):
                with storage(f"writing embeddings to {files.where}"):
                    shard.publish(files)

        self._publishing.put(self.stages[2].submit(work, after=self._last))

    def drain(self) -> None:
        """Wait until all is published; raises what went wrong."""
        self._gathering.drain()
        self._publishing.drain()
