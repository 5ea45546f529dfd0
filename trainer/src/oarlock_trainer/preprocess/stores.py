"""Where the embeddings of a job are cached, and which rows of the table have theirs."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from oarlock_api.data import TextEmbedsMode
from oarlock_api.dataset import EmbedMode
from oarlock_api.quantity import whole_bytes
from oarlock_trainer.data.embedding_index import EmbeddingIndex, resolve
from oarlock_trainer.data.entries import PAIR, entries_of, entry_keys, quarters
from oarlock_trainer.data.metadata import keys
from oarlock_trainer.data.metadata.scan import table_folder
from oarlock_trainer.data.seen_texts import seen_texts
from oarlock_trainer.models.families import masks_text
from oarlock_trainer.storage.cache import CachedFiles
from oarlock_trainer.storage.local import LocalFiles

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oarlock_api.dataset import Dataset
    from oarlock_trainer.data.cache_keys import Encoders
    from oarlock_trainer.data.metadata.table import Table
    from oarlock_trainer.runtime.job import Job
    from oarlock_trainer.storage.files import Files
    from oarlock_trainer.storage.locations import Locations

_PLACES = "places"


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingStores:
    """The places of a job's embeddings: of each data set that keeps its latents, all of these once, and of captions.

    `texts` is None where captions are encoded while training.
    """

    of_dataset: dict[str, Files]
    latents: tuple[Files, ...]
    texts: Files | None

    @property
    def all(self) -> list[Files]:
        """All of them once, captions last."""
        return [*self.latents, *([self.texts] if self.texts else [])]


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundEmbeddings:
    """Where rank 0 has resolved the rows to, and how many that are needed have no embedding; masks count as latents."""

    latents: Path
    texts: Path | None
    missing_latents: int
    missing_texts: int

    @property
    def complete(self) -> bool:
        """Whether nothing is missing."""
        return not (self.missing_latents or self.missing_texts)


def latents_at(job: Job, locations: Locations, dataset: Dataset) -> Files:
    """Where the latents of a data set are cached."""
    if dataset.image_embeds.location:
        return locations.files_at(dataset.image_embeds.location, f'imageEmbeds.location of dataset "{dataset.name}"')
    if job.training.data.image_embeds:
        return locations.files_at(job.training.data.image_embeds, "training.data.imageEmbeds")
    return LocalFiles(job.output / "embeds" / "latents", field="output.directory", owner=job.file.job_uid)


def texts_at(job: Job, locations: Locations) -> Files | None:
    """Where text embeddings are cached, if they are."""
    if job.training.data.text_embeds_mode is TextEmbedsMode.ON_THE_FLY:
        return None
    if job.training.data.text_embeds:
        return locations.files_at(job.training.data.text_embeds, "training.data.textEmbeds")
    return LocalFiles(job.output / "embeds" / "text", field="output.directory", owner=job.file.job_uid)


def open_stores(job: Job, locations: Locations) -> EmbeddingStores:
    """All places. Nothing is asked for yet.

    Raises ConfigurationError where a location names none.
    """
    kept = [one for one in job.training.data.datasets if one.image_embeds.mode is not EmbedMode.ON_THE_FLY]
    of_dataset = {dataset.name: latents_at(job, locations, dataset) for dataset in kept}
    distinct = {store.where: store for store in of_dataset.values()}
    return EmbeddingStores(of_dataset=of_dataset, latents=tuple(distinct.values()), texts=texts_at(job, locations))


def remove_unfinished(stores: EmbeddingStores) -> None:
    """Remove what a kill left in folders of this job's own writes. Rank 0 only, before any rank writes.

    Whoever holds the output's fence may: an earlier attempt that still writes is one that was given up.
    """
    for store in stores.all:
        if isinstance(store, LocalFiles):
            store.remove_unfinished()


def read_through(job: Job, stores: Sequence[Files]) -> list[Files]:
    """The same places, those that are far away behind a cache on the node's disk where the job gives it room."""
    room = job.training.data.tuning.s3_cache
    if room is None:
        return list(stores)
    far = [store for store in stores if not isinstance(store, LocalFiles)]
    # Each process has a cache for each place in one folder, and all together are to fit.
    writers = job.rank_info.local_world_size * max(len(far), 1)
    folder = Path(tempfile.gettempdir()) / "oarlock-cache"
    return [
        CachedFiles(store, folder, capacity=whole_bytes(room), processes=writers) if store in far else store
        for store in stores
    ]


def empty_text_key(job: Job, encoders: Encoders) -> bytes:
    """Key of the empty caption, which caption dropout needs."""
    masked = masks_text(job.training)
    key: bytes = keys.text_keys(pa.array([""]), encoder=encoders.text, unpadded=masked)[0].as_py()
    return key


def beforehand(job: Job, table: Table) -> np.ndarray:
    """(entries,) bool, as in data.entries: which latents are made before training."""
    cached = np.array([dataset.image_embeds.mode is EmbedMode.CACHE for dataset in job.training.data.datasets])
    return entries_of(table.kept & cached[table.datasets()], table, job.training)


def find(job: Job, table: Table, stores: EmbeddingStores, empty_key: bytes) -> FoundEmbeddings:
    """Find the embeddings of all rows in the stores. Rank 0 only; all others map what it found (EmbeddingIndex)."""
    folder = places_folder(job)
    parts = [part.file for part in table.manifest.parts]

    def text_keys() -> np.ndarray:
        if seen:
            return seen.keys(empty_key)
        return np.concatenate([table.text_keys(), np.frombuffer(empty_key, dtype="<u8").reshape(1, 2)])

    kept = quarters(job.training)
    entries = len(table) * kept
    asked = ",".join([*parts, *(["mirrored"] if kept > 1 else []), *(["pairs"] if kept > PAIR else [])])
    latents = resolve(folder, "latents", asked=asked, keys=lambda: entry_keys(table, entries), stores=stores.latents)
    texts, seen = None, seen_texts(table, job.training)
    if stores.texts:
        asked = ",".join([*parts, empty_key.hex(), *([f"seen {len(seen)}"] if seen else [])])
        texts = resolve(folder, "texts", asked=asked, keys=text_keys, stores=[stores.texts])
    return FoundEmbeddings(
        latents=latents,
        texts=texts,
        missing_latents=int(missing_latents(job, table, EmbeddingIndex(latents, stores.latents)).sum()),
        missing_texts=int(missing_texts(job, table, text_places(texts, stores)).sum()),
    )


def text_places(found: Path | None, stores: EmbeddingStores) -> EmbeddingIndex | None:
    """Where the captions' embeddings are; None where they are stored nowhere."""
    return EmbeddingIndex(found, [stores.texts]) if found and stores.texts else None


def places_folder(job: Job) -> Path:
    """Where answers of `find` lie."""
    return table_folder(job.output) / _PLACES


def missing_latents(job: Job, table: Table, latents: EmbeddingIndex) -> np.ndarray:
    """(entries,) bool: which latents are needed before training and are not there."""
    return np.asarray((latents.records < 0) & beforehand(job, table))


def wanted_texts(job: Job, table: Table) -> np.ndarray:
    """(captions + 1,) bool, or as in data.seen_texts: which captions need an embedding, with the empty one as the last."""
    if seen := seen_texts(table, job.training):
        return seen.wanted()
    return np.append(np.repeat(table.kept, table.caption_counts()), True)


def missing_texts(job: Job, table: Table, texts: EmbeddingIndex | None) -> np.ndarray:
    """The same: which of them have none."""
    wanted = wanted_texts(job, table)
    return np.zeros_like(wanted) if texts is None else np.asarray((texts.records < 0) & wanted)
