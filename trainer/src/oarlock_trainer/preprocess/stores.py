"""Where the embeddings of a job are cached, and which are missing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from oarlock_trainer.data.shards import ShardReader
from oarlock_trainer.durable import TEMPORARY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oarlock_api.dataset import Dataset
    from oarlock_trainer.data.metadata.table import Picture
    from oarlock_trainer.job import Job


@dataclass(frozen=True, slots=True)
class Stores:
    """What is published now: latents by dataset, and text embeddings."""

    latents: dict[str, ShardReader]
    texts: ShardReader


@dataclass(frozen=True, slots=True)
class Missing:
    """Rows of the table without latents, and captions without embeddings by their key."""

    latents: tuple[int, ...]
    captions: dict[str, str]

    def __bool__(self) -> bool:
        return bool(self.latents or self.captions)


def latent_folder(job: Job, dataset: Dataset) -> Path:
    """Where the latents of a dataset are cached."""
    place = dataset.image_embeds.location or job.training.data.image_embeds
    return Path(place.path) if place and place.path else job.output / "embeds" / "latents"


def text_folder(job: Job) -> Path:
    """Where text embeddings are cached."""
    place = job.training.data.text_embeds
    return Path(place.path) if place and place.path else job.output / "embeds" / "text"


def open_stores(job: Job) -> Stores:
    """Read the indices of everything that is published now."""
    folders = {dataset.name: latent_folder(job, dataset) for dataset in job.training.data.datasets}
    readers = {folder: ShardReader(folder) for folder in set(folders.values())}
    return Stores({name: readers[folder] for name, folder in folders.items()}, ShardReader(text_folder(job)))


def find_missing(job: Job, pictures: Sequence[Picture], empty_text_key: str) -> Missing:
    """Compare the table with what is published. The empty caption is needed for caption dropout."""
    stores = open_stores(job)
    without_latents: list[int] = []
    for name, reader in stores.latents.items():
        rows = [row for row, picture in enumerate(pictures) if picture.dataset == name]
        places = reader.find(pictures[row].image_key for row in rows)
        without_latents += [row for row, place in zip(rows, places, strict=True) if place < 0]
    captions = {empty_text_key: ""} | {picture.text_key: picture.caption for picture in pictures}
    places = stores.texts.find(captions)
    missing = {key: caption for (key, caption), place in zip(captions.items(), places, strict=True) if place < 0}
    return Missing(tuple(sorted(without_latents)), missing)


def remove_unpublished(job: Job) -> None:
    """Remove what earlier attempts of this job began to write and never published. Rank 0 only."""
    folders = {latent_folder(job, dataset) for dataset in job.training.data.datasets} | {text_folder(job)}
    for folder in folders:
        for path in folder.glob(f"{TEMPORARY}{job.file.job_uid}-a*"):
            path.unlink(missing_ok=True)
