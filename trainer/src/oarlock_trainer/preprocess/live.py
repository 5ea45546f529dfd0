"""Latents that are made while training: for data sets with imageEmbeds.mode OnDemand or OnTheFly.

OnTheFly stores nothing. OnDemand keeps what is made: see preprocess.kept. A picture that cannot be used is listed and
counted (data.quarantine_shared), and another takes its place (data.batches).
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event, Lock
from typing import TYPE_CHECKING

from oarlock_api.dataset import EmbedMode
from oarlock_trainer.data.entries import Pair, pair_of
from oarlock_trainer.data.metadata.facts import counts_of, total
from oarlock_trainer.data.metadata.scan import picture_cut, table_folder
from oarlock_trainer.data.metadata.sources import Sources
from oarlock_trainer.data.metadata.table import open_table
from oarlock_trainer.data.quarantine import UNREADABLE, Rejected
from oarlock_trainer.data.quarantine_shared import SharedQuarantine
from oarlock_trainer.models.compute.own_stream import OwnStream
from oarlock_trainer.models.encoders import PictureEncoder
from oarlock_trainer.models.families import family_of
from oarlock_trainer.models.family_codes import code_of
from oarlock_trainer.plan.encoding import vae_batch
from oarlock_trainer.preprocess.latents import bits, encode, is_finite, not_encodable, unusable
from oarlock_trainer.preprocess.on_demand import OnDemandCache
from oarlock_trainer.preprocess.pictures import decoded
from oarlock_trainer.preprocess.shares import threads_of
from oarlock_trainer.preprocess.stores import latents_at
from oarlock_trainer.preprocess.videos import decode_video

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import torch

    from oarlock_trainer.data.metadata.table import Picture
    from oarlock_trainer.engine.process_group import RankGroup
    from oarlock_trainer.preprocess.on_demand import Latents
    from oarlock_trainer.runtime.job import Job
    from oarlock_trainer.storage.locations import Locations


class LiveEncoding:
    """Encodes pictures when they are needed. Safe to use from several threads, of which one at a time uses the encoder."""

    def __init__(self, job: Job, locations: Locations, ranks: RankGroup) -> None:
        """Nothing is loaded before the first picture comes."""
        self._job = job
        self._device = ranks.device
        live = [one for one in job.training.data.datasets if one.image_embeds.mode is not EmbedMode.CACHE]
        self._datasets = {dataset.name: dataset for dataset in live}
        self._sources = Sources(live, locations)
        kept = [one for one in live if one.image_embeds.mode is EmbedMode.ON_DEMAND]
        self._stores = {dataset.name: latents_at(job, locations, dataset) for dataset in kept}
        self._kept: dict[str, OnDemandCache] = {}
        self._encoder: PictureEncoder | None = None
        self._stream = OwnStream(ranks.device)
        self._quarantine: SharedQuarantine | None = None
        self._opening, self._encoding, self._listing = Lock(), Lock(), Lock()
        self._stop = Event()
        self._pool = ThreadPoolExecutor(threads_of(job), thread_name_prefix="decode")

    def encode(self, pictures: Sequence[Picture]) -> list[Latents | None]:
        """Latents of pictures of one size, or all of them their pairs, in their order; None of one that cannot be used.

        Raises ConfigurationError where these are more than may be.
        """
        found = list(self._pool.map(self._stored, pictures))
        absent = [picture for picture, latents in zip(pictures, found, strict=True) if latents is None]
        videos = any(self._datasets[picture.dataset].video for picture in absent)
        size = 1 if videos else vae_batch(self._job.training)
        made: list[Latents | Rejected] = []
        for start in range(0, len(absent), size):
            made += self._make(absent[start : start + size])
        if rejected := [one for one in made if isinstance(one, Rejected)]:
            self._leave_out(rejected)
        new = iter(made)
        return [_usable(next(new)) if latents is None else latents for latents in found]

    def close(self) -> None:
        """Publish what is kept."""
        self._stop.set()
        self._pool.shutdown(wait=True, cancel_futures=True)
        for kept in self._kept.values():
            kept.close()

    def _make(self, pictures: Sequence[Picture]) -> list[Latents | Rejected]:
        pixels = list(self._pool.map(self._pixels, pictures))
        fine = [(picture, one) for picture, one in zip(pictures, pixels, strict=True) if not isinstance(one, Rejected)]
        made = iter(self._encoded(fine))
        found: list[Latents | Rejected] = []
        for picture, one in zip(pictures, pixels, strict=True):
            if isinstance(one, Rejected):
                found.append(one)
            elif is_finite(latent := next(made)):
                channels, height, width = latent.shape
                latents = (bits(latent).reshape(-1), (channels, height, width))
                if kept := self._keeping(picture):
                    kept.add(picture.image_key, latents)
                found.append(latents)
            else:
                found.append(not_encodable(picture))
        return found

    def _encoded(self, pictures: Sequence[tuple[Picture, np.ndarray]]) -> Sequence[torch.Tensor]:
        if not pictures:
            return []
        with self._encoding, self._stream.entered():
            if self._encoder is None:
                model = self._job.training.model
                self._encoder = PictureEncoder(
                    Path(model.path or ""), family_of(model), self._device, code=code_of(model)
                )
            pair = self._pair(pictures[0][0])
            return list(encode([one for one, _ in pictures], [pixels for _, pixels in pictures], self._encoder, pair))

    def _pixels(self, picture: Picture) -> np.ndarray | Rejected:
        dataset, source = self._datasets[picture.dataset], self._sources.of(picture)
        cut = picture_cut(self._job.training, dataset, picture.name, picture.size)
        try:
            if dataset.video:
                return decode_video(source, picture, cut, dataset.video, self._stop)
            return decoded(source.read(picture.file), picture, cut, self._pair(picture))
        except UNREADABLE as error:
            return unusable(picture, source, error, self._pair(picture))

    def _pair(self, picture: Picture) -> Pair | None:
        return pair_of(picture, self._datasets[picture.dataset], self._job.training.model)

    def _leave_out(self, rejected: Sequence[Rejected]) -> None:
        with self._listing:
            if self._quarantine is None:
                self._quarantine = _quarantine(self._job)
            self._quarantine.add(rejected)

    def _stored(self, picture: Picture) -> Latents | None:
        kept = self._keeping(picture)
        return kept.read(picture.image_key) if kept else None

    def _keeping(self, picture: Picture) -> OnDemandCache | None:
        files = self._stores.get(picture.dataset)
        if files is None:
            return None
        with self._opening:  # which lists the place
            if files.where not in self._kept:
                self._kept[files.where] = OnDemandCache(files, self._job.training.data.compression)
            return self._kept[files.where]


def _usable(made: Latents | Rejected) -> Latents | None:
    return None if isinstance(made, Rejected) else made


def _quarantine(job: Job) -> SharedQuarantine:
    """What this rank leaves out, beside what the scan and the encoders before training left out."""
    folder = table_folder(job.output)
    table = open_table(folder)
    counts = counts_of(folder, table.manifest) if table else []
    left_out = {"not encodable": len(table.manifest.left_out)} if table else {}
    return SharedQuarantine(
        job.output,
        attempt=job.file.attempt,
        rank=job.rank_info.rank,
        pictures=sum(one.found for one in counts),
        before=total([*(one.bad for one in counts), left_out]),
    )
