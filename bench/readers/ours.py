"""Ours: shards of 256 MB with checksums, read as a rank of training reads them, shuffled over the whole set.

One process: a thread makes batches, three ahead, of samples that eight threads read (data.prefetch, data.batches).
"""

import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import samples
import torch

from oarlock_api.data import Compression
from oarlock_trainer.data.embedding_index import EmbeddingIndex, resolve
from oarlock_trainer.data.permutation import round_keys, shuffled
from oarlock_trainer.data.records import pack
from oarlock_trainer.data.shards import SHARD_BYTES, Shard
from oarlock_trainer.runtime.draws import Purpose
from oarlock_trainer.runtime.stages import ahead
from oarlock_trainer.storage.local import LocalFiles

KINDS = ("latents", "text")
THREADS, AHEAD = 8, 3


def write(folder: Path, count: int) -> None:
    """Latents and text in places of their own, and the answer where each is."""
    shards = {kind: Shard() for kind in KINDS}
    for number, sample in enumerate(samples.make(count)):
        for kind, values in zip(KINDS, sample, strict=True):
            key = number.to_bytes(16, "little")
            shards[kind].append(pack(key, values, (1, 1, values.size), Compression.NONE))
            if shards[kind].size >= SHARD_BYTES:
                shards[kind].publish(_files(folder, kind))
                shards[kind] = Shard()
    for kind, shard in shards.items():
        if len(shard):
            shard.publish(_files(folder, kind))
    np.save(folder / "count.npy", count)
    for kind in KINDS:
        _places(folder, kind, count)


def read(folder: Path) -> None:
    """One epoch in shuffled order."""
    began = time.monotonic()
    count = int(np.load(folder / "count.npy"))
    latents, texts = (_places(folder, kind, count) for kind in KINDS)
    entries = np.arange(count)
    order = shuffled(entries, np.zeros_like(entries), length=count, keys=round_keys(0, Purpose.ORDER, 0))
    with ThreadPoolExecutor(THREADS) as readers, ThreadPoolExecutor(1) as batches:

        def sample(row: int) -> tuple[bytes, bytes]:
            # What is read is one buffer each, from which samples.tensor copies as it does for every reader.
            return latents.read(row)[0].data, texts.read(row)[0].data  # type: ignore[return-value]

        def batch(start: int) -> tuple[torch.Tensor, torch.Tensor]:
            return samples.collate(list(readers.map(sample, order[start : start + samples.BATCH].tolist())))

        def begin(start: int) -> Future[tuple[torch.Tensor, torch.Tensor]]:
            return batches.submit(batch, start)

        starts = range(0, count, samples.BATCH)
        samples.measure((made.result() for _, made in ahead(starts, begin, limit=AHEAD)), began)


def _places(folder: Path, kind: str, count: int) -> EmbeddingIndex:
    stores = [_files(folder, kind)]
    answer = resolve(folder / "places", kind, asked="all", keys=lambda: _keys(count), stores=stores)
    return EmbeddingIndex(answer, stores)


def _keys(count: int) -> np.ndarray:
    return np.stack([np.arange(count, dtype="<u8"), np.zeros(count, dtype="<u8")], axis=1)


def _files(folder: Path, kind: str) -> LocalFiles:
    return LocalFiles(folder / kind, field="bench")


if __name__ == "__main__":
    write(Path(sys.argv[2]), int(sys.argv[3])) if sys.argv[1] == "write" else read(Path(sys.argv[2]))
