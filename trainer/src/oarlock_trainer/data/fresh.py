"""Records that were published after training began: what the ranks encode on demand, found by key."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from oarlock_trainer.data.matching import SortedKeys
from oarlock_trainer.data.shards import published, read_index, read_record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oarlock_trainer.data.shards import ShardFile
    from oarlock_trainer.storage.files import Files


class Fresh:
    """The shards of one place that were not there yet when this was made. About 100 bytes a record.

    Any thread may read while one takes more in.
    """

    def __init__(self, files: Files) -> None:
        self._files = files
        self._seen = {shard.name for shard in published(files.list())}
        self._names: list[str] = []
        self._indices: list[np.ndarray] = []
        self._take([])

    def look(self) -> None:
        """Take in what has been published since, by any rank."""
        self._take(published(self._files.list()))

    def take(self, shard: ShardFile) -> None:
        """Take in a shard that is known to be there."""
        self._take([shard])

    def read(self, key: bytes) -> tuple[np.ndarray, tuple[int, int, int]] | None:
        """The values of a record and their shape, None where there is none.

        Raises StorageError where the bytes are not those that were published.
        """
        keys, ends = self._known  # of one moment: another thread may take more in meanwhile
        number = int(keys.find(np.frombuffer(key, dtype="<u8").reshape(1, 2))[0])
        if number < 0:
            return None
        shard = int(np.searchsorted(ends, number, side="right"))
        return read_record(self._files, self._names[shard], self._indices[shard][number - ends[shard]])

    def _take(self, shards: Sequence[ShardFile]) -> None:
        for shard in shards:
            index = None if shard.name in self._seen else read_index(self._files, shard)
            if index is not None:
                self._seen.add(shard.name)
                self._indices.append(index)
                self._names.append(shard.name)
        keys = SortedKeys(np.concatenate([np.empty((0, 2), dtype="<u8"), *(one["key"] for one in self._indices)]))
        self._known = (keys, np.cumsum([len(index) for index in self._indices]))
