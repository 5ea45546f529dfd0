"""Latents that are made while training: for data sets with imageEmbeds.mode OnDemand or OnTheFly.

OnTheFly stores nothing. OnDemand keeps what is made: each rank publishes shards of its own, small ones at first, so that
the others soon find in them what they would have encoded again.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from oarlock_api.dataset import EmbedMode
from oarlock_trainer.data.fresh import Fresh
from oarlock_trainer.data.metadata.opened import source_of
from oarlock_trainer.data.metadata.scan import picture_cut
from oarlock_trainer.data.quarantine import UNREADABLE
from oarlock_trainer.data.records import pack, unpack
from oarlock_trainer.data.shards import Shard, ShardFile
from oarlock_trainer.errors import ConfigurationError, StorageError, failed_reading, storage
from oarlock_trainer.preprocess.shares import VAE_BATCH, threads_of
from oarlock_trainer.preprocess.stores import latents_at

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np

    from oarlock_api.data import Compression
    from oarlock_trainer.data.metadata.table import Picture
    from oarlock_trainer.data.records import Record
    from oarlock_trainer.engine.process_group import Ranks
    from oarlock_trainer.job import Job
    from oarlock_trainer.models.flux.encode import PictureEncoder
    from oarlock_trainer.storage.files import Files

Latents = tuple["np.ndarray", tuple[int, int, int]]
"""Flat uint16 (the bits of bfloat16), and (channels, height, width)."""

_FIRST_BYTES, _MOST_BYTES = 4 << 20, 32 << 20
"""Of a shard. A batch waits while one is published, so none is as large as those that are made before training."""
_LOOK_SECONDS = 60.0
"""To list a place takes a request for each thousand of its files."""


class Kept:
    """What one rank keeps of a place: the shard that it fills, and what all ranks have published since it began."""

    def __init__(self, files: Files, compression: Compression, clock: Callable[[], float] = time.monotonic) -> None:
        self._files = files
        self._compression = compression
        self._clock = clock
        self._fresh = Fresh(files)
        self._looked = clock()
        self._shard = Shard()
        self._waiting: dict[bytes, Record] = {}
        self._published = 0

    def read(self, key: bytes) -> Latents | None:
        """Latents that were kept, None where there are none."""
        if (record := self._waiting.get(key)) is not None:
            return unpack(record.data, size=record.size, coding=record.coding), record.shape
        return self._fresh.read(key)

    def add(self, key: bytes, latents: Latents) -> None:
        """Keep latents; publishes once they are as many as all that was published before, or a full shard.

        Then looks, at most once a minute, for what the other ranks have published.
        """
        record = pack(key, *latents, self._compression)
        self._waiting[key] = record
        self._shard.append(record)
        if self._shard.size >= min(max(self._published, _FIRST_BYTES), _MOST_BYTES):
            self.publish()
            if self._clock() - self._looked >= _LOOK_SECONDS:
                self._fresh.look()
                self._looked = self._clock()

    def publish(self) -> None:
        """Publish what was kept since the last shard."""
        if not len(self._shard):
            return
        with storage(f"writing latents to {self._files.where}"):
            name = self._shard.publish(self._files)
        self._fresh.take(ShardFile(name, "", self._shard.size))
        self._published += self._shard.size
        self._shard, self._waiting = Shard(), {}


class LiveEncoding:
    """Encodes pictures when they are needed. Safe to use from several threads, of which one encodes at a time."""

    def __init__(self, job: Job, ranks: Ranks) -> None:
        """Nothing is loaded before the first picture comes."""
        self._job = job
        self._device = ranks.device
        live = [one for one in job.training.data.datasets if one.image_embeds.mode is not EmbedMode.CACHE]
        self._datasets = {dataset.name: dataset for dataset in live}
        self._sources = {dataset.name: source_of(dataset, job) for dataset in live}
        self._stores = {one.name: latents_at(job, one) for one in live if one.image_embeds.mode is EmbedMode.ON_DEMAND}
        self._kept: dict[str, Kept] = {}
        self._encoder: PictureEncoder | None = None
        self._lock = Lock()
        self._pool = ThreadPoolExecutor(threads_of(job), thread_name_prefix="decode")

    def encode(self, pictures: Sequence[Picture]) -> list[Latents]:
        """Latents of pictures of one size, in their order.

        Raises ConfigurationError where a picture cannot be used: a step cannot leave one out.
        """
        with self._lock:
            found = [self._stored(picture) for picture in pictures]
            absent = [picture for picture, latents in zip(pictures, found, strict=True) if latents is None]
            made = iter(self._make(absent))
            return [next(made) if latents is None else latents for latents in found]

    def close(self) -> None:
        """Publish what is kept."""
        with self._lock:
            self._pool.shutdown(wait=True, cancel_futures=True)
            for kept in self._kept.values():
                kept.publish()

    def _make(self, pictures: Sequence[Picture]) -> list[Latents]:
        from oarlock_trainer.models.flux.encode import PictureEncoder  # noqa: PLC0415 - a heavy import, seldom needed
        from oarlock_trainer.preprocess.latents import bits, encode, is_finite  # noqa: PLC0415

        training = self._job.training
        if pictures and self._encoder is None:
            self._encoder = PictureEncoder(Path(training.model.path or ""), self._device)
        made: list[Latents] = []
        size = training.data.tuning.vae_batch_size or VAE_BATCH
        for start in range(0, len(pictures), size):
            batch = pictures[start : start + size]
            pixels = list(self._pool.map(self._pixels, batch))
            assert self._encoder is not None  # noqa: S101 - loaded above
            for picture, latent in zip(batch, encode(batch, pixels, self._encoder), strict=True):
                if not is_finite(latent):
                    raise _unusable(picture, "the VAE gave non-finite latents")
                channels, height, width = latent.shape
                latents = (bits(latent).reshape(-1), (channels, height, width))
                if kept := self._keeping(picture):
                    kept.add(picture.image_key, latents)
                made.append(latents)
        return made

    def _pixels(self, picture: Picture) -> np.ndarray:
        from oarlock_trainer.preprocess.latents import decode  # noqa: PLC0415

        dataset = self._datasets[picture.dataset]
        source = self._sources[dataset.name]
        try:
            content = source.read(picture.name)
            return decode(content, picture_cut(self._job.training, dataset, picture.name, picture.size), picture.size)
        except UNREADABLE as error:
            if failed_reading(error):
                raise StorageError(f"reading {picture.name} in {source.where}: {error}") from error
            raise _unusable(picture, str(error)) from error

    def _stored(self, picture: Picture) -> Latents | None:
        kept = self._keeping(picture)
        return kept.read(picture.image_key) if kept else None

    def _keeping(self, picture: Picture) -> Kept | None:
        files = self._stores.get(picture.dataset)
        if files is None:
            return None
        if files.where not in self._kept:
            self._kept[files.where] = Kept(files, self._job.training.data.compression)
        return self._kept[files.where]


def _unusable(picture: Picture, reason: str) -> ConfigurationError:
    return ConfigurationError(
        f"{picture.name} of dataset {picture.dataset} cannot be used: {reason}. Mend or remove it; with imageEmbeds.mode: "
        "Cache such pictures are found before training, and left out"
    )
