"""Records that were published after training began: what the ranks encode on demand, found by key."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from oarlock_trainer.data.matching import SortedKeys
from oarlock_trainer.data.shards import INDEX, published, read_index, read_record

if TYPE_CHECKING:
    from oarlock_trainer.storage.files import Files


class Fresh:
    """The shards of one place that were not there yet when this was made. About 100 bytes a record."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._seen = {shard.name for shard in published(files.list())}
        self._names: list[str] = []
        self._owners = np.empty(0, dtype=np.int64)
        self._index = np.empty(0, dtype=INDEX)
        self._keys = SortedKeys(self._index["key"])

    def look(self) -> None:
        """Take in what has been published since, by any rank."""
        for shard in published(self._files.list()):
            if shard.name in self._seen:
                continue
            index = read_index(self._files, shard)
            if index is not None:
                self._seen.add(shard.name)
                self._owners = np.append(self._owners, np.full(len(index), len(self._names)))
                self._index = np.append(self._index, index)
                self._names.append(shard.name)
        self._keys = SortedKeys(np.ascontiguousarray(self._index["key"]))

    def read(self, key: bytes) -> tuple[np.ndarray, tuple[int, int, int]] | None:
        """The values of a record and their shape, None where there is none.

        Raises StorageError where the bytes are not those that were published.
        """
        number = int(self._keys.find(np.frombuffer(key, dtype="<u8").reshape(1, 2))[0])
        if number < 0:
            return None
        return read_record(self._files, self._names[int(self._owners[number])], self._index[number])
