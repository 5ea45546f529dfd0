"""Each rank's share of the encoding: its units, its encoders on its device, its shards."""

from __future__ import annotations

import secrets
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from oarlock_trainer.data.entries import pair_of, picture_at
from oarlock_trainer.data.metadata.scan import picture_cut, table_folder
from oarlock_trainer.data.metadata.sources import Sources
from oarlock_trainer.data.pair_sizes import seen_cut
from oarlock_trainer.data.progress import Progress
from oarlock_trainer.models.encoders import PictureEncoder
from oarlock_trainer.models.families import family_of, flavor_of, masks_text, sight_of
from oarlock_trainer.models.family_codes import code_of
from oarlock_trainer.plan.encoding import vae_batch
from oarlock_trainer.preprocess.latents import Task, encode_pictures
from oarlock_trainer.preprocess.seen_captions import SeenTask, encode_seen_captions
from oarlock_trainer.preprocess.storing import Storing
from oarlock_trainer.preprocess.text import encode_captions
from oarlock_trainer.preprocess.units import EMPTY, share
from oarlock_trainer.runtime.cgroup import cores_of_the_ranks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from oarlock_trainer.data.metadata.table import Table
    from oarlock_trainer.data.quarantine import Rejected
    from oarlock_trainer.data.seen_texts import SeenTexts
    from oarlock_trainer.engine.process_group import RankGroup
    from oarlock_trainer.preprocess.stores import EmbeddingStores
    from oarlock_trainer.runtime.job import Job
    from oarlock_trainer.storage.files import Files
    from oarlock_trainer.storage.locations import Locations

TEXT_BATCH = 16
_WORK = "work"
_MOST_THREADS = 32


def publish_work(job: Job, **work: np.ndarray) -> dict[str, Path]:
    """Write the work of all ranks below the output, where each maps it; returns its files. Rank 0 only."""
    folder = table_folder(job.output) / _WORK
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    # Never a name that was there before: another node's file system may remember what it held.
    files = {name: folder / f"{name}-{secrets.token_hex(8)}.npy" for name in work}
    for name, file in files.items():
        np.save(file, work[name], allow_pickle=False)
    return files


def threads_of(job: Job) -> int:
    """Threads of one rank that decode: its share of data.tuning.workers, or of the processors that the pod may use."""
    node = job.training.data.tuning.workers or cores_of_the_ranks()
    return min(max(node // job.rank_info.local_world_size, 1), _MOST_THREADS)


def encode_own_captions(
    job: Job,
    ranks: RankGroup,
    table: Table,
    file: Path,
    *,
    stores: EmbeddingStores,
    empty_key: bytes,
    go_on: Callable[[], None],
) -> None:
    """Encode and publish this rank's share of the captions."""
    work = np.load(file, mmap_mode="r")
    units = _own(ranks, work)
    if not units or stores.texts is None:
        return

    def tasks() -> Iterator[tuple[int, bytes, str]]:
        for unit in units:
            for row, caption, number in unit.tolist():
                if row == EMPTY:
                    yield number, empty_key, ""
                else:
                    picture = table.picture(row)
                    yield number, picture.text_keys[caption], picture.captions[caption]

    training = job.training
    encode_captions(
        tasks(),
        code_of(training.model).caption_encoder(
            Path(training.model.path or ""), flavor_of(training.model), ranks.device
        ),
        Storing(training.data.compression, threads=threads_of(job), go_on=go_on),
        store=stores.texts,
        batch_size=training.data.tuning.text_batch_size or TEXT_BATCH,
        unpadded=masks_text(training),
        progress=_progress("text embeddings", ranks, units, work),
        go_on=go_on,
    )


def encode_own_seen_captions(
    job: Job,
    locations: Locations,
    ranks: RankGroup,
    texts: SeenTexts,
    file: Path,
    *,
    stores: EmbeddingStores,
    empty_key: bytes,
    bound: Callable[[Sequence[tuple[int, Rejected]]], None],
    go_on: Callable[[], None],
) -> list[tuple[int, Rejected]]:
    """The same of captions that are encoded beside references; returns rows whose references cannot be used.

    `bound` raises where they are too many.
    """
    work = np.load(file, mmap_mode="r")
    units, make = _own(ranks, work), code_of(job.training.model).seeing_encoder
    if not units or stores.texts is None or make is None:
        return []
    training, threads = job.training, threads_of(job)
    return encode_seen_captions(
        _seen_tasks(job, locations, texts, units, store=stores.texts, empty_key=empty_key),
        make(Path(training.model.path or ""), flavor_of(training.model), ranks.device),
        Storing(training.data.compression, threads=threads, go_on=go_on),
        batch_size=training.data.tuning.text_batch_size or TEXT_BATCH,
        threads=threads,
        progress=_progress("text embeddings", ranks, units, work),
        bound=bound,
        go_on=go_on,
    )


def encode_own_pictures(
    job: Job,
    locations: Locations,
    ranks: RankGroup,
    table: Table,
    file: Path,
    *,
    stores: EmbeddingStores,
    bound: Callable[[Sequence[tuple[int, Rejected]]], None],
    go_on: Callable[[], None],
) -> list[tuple[int, Rejected]]:
    """Encode and publish this rank's share of pictures and pairs; returns rows whose pictures cannot be used.

    `bound` raises where they are too many.
    """
    work = np.load(file, mmap_mode="r")
    units = _own(ranks, work)
    if not units:
        return []
    training, threads = job.training, threads_of(job)
    return encode_pictures(
        _tasks(job, locations, table, units, stores),
        PictureEncoder(
            Path(training.model.path or ""), family_of(training.model), ranks.device, code=code_of(training.model)
        ),
        Storing(training.data.compression, threads=threads, go_on=go_on),
        batch_size=vae_batch(training),
        threads=threads,
        progress=_progress("latents", ranks, units, work),
        bound=bound,
        go_on=go_on,
    )


def _tasks(
    job: Job, locations: Locations, table: Table, units: Sequence[np.ndarray], stores: EmbeddingStores
) -> Iterator[Task]:
    datasets = {dataset.name: dataset for dataset in job.training.data.datasets}
    sources = Sources(datasets.values(), locations)
    for unit in units:
        for entry, _, number in unit.tolist():
            picture = picture_at(table, entry)
            dataset, source = datasets[picture.dataset], sources.of(picture)
            cut = picture_cut(job.training, dataset, picture.name, picture.size)
            store, row = stores.of_dataset[picture.dataset], entry % len(table)
            pair = pair_of(picture, dataset, job.training.model)
            yield Task(
                row=row,
                picture=picture,
                pair=pair,
                video=dataset.video,
                source=source,
                cut=cut,
                unit=number,
                store=store,
            )


def _seen_tasks(
    job: Job, locations: Locations, texts: SeenTexts, units: Sequence[np.ndarray], *, store: Files, empty_key: bytes
) -> Iterator[SeenTask]:
    model = job.training.model
    datasets = {dataset.name: dataset for dataset in job.training.data.datasets}
    sources, sight = Sources(datasets.values(), locations), sight_of(model)
    for unit in units:
        for place, _, number in unit.tolist():
            row, key, caption, picture = texts.at(place, empty_key)
            dataset = datasets[picture.dataset]
            cut = seen_cut(picture_cut(job.training, dataset, picture.name, picture.size), sight)
            pair, source = pair_of(picture, dataset, model), sources.of(picture)
            yield SeenTask(
                row=row, picture=picture, pair=pair, source=source, cut=cut, unit=number, store=store, key=key,
                caption=caption,
            )  # fmt: skip


def _own(ranks: RankGroup, work: np.ndarray) -> list[np.ndarray]:
    return list(share(work, rank=ranks.rank_info.rank, world_size=ranks.rank_info.world_size))


def _progress(what: str, ranks: RankGroup, units: Sequence[np.ndarray], work: np.ndarray) -> Progress:
    own = sum(len(unit) for unit in units)
    return Progress(what, own=own, total=len(work), speaks=ranks.rank_info.is_leader)
