"""From the data sets of a job to everything that a training step reads: scan -> find -> encode -> publish.

All ranks work together, each on its share. What is stored already is skipped, and a table that an earlier attempt of the
same training published is taken as it is, without looking at the source. The table is published once all its rows have their
embeddings; what was encoded until a kill is published already, shard by shard.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from oarlock_api.contract.status import PodPhase
from oarlock_api.data import OnMissingEmbeds
from oarlock_api.training import Task
from oarlock_trainer.data import quarantine
from oarlock_trainer.data.cache_keys import fingerprints
from oarlock_trainer.data.embedding_index import EmbeddingIndex, forget
from oarlock_trainer.data.entries import entry_keys
from oarlock_trainer.data.matching import SortedKeys
from oarlock_trainer.data.metadata.facts import counts_of, rejected_in, total
from oarlock_trainer.data.metadata.recipe import table_fingerprint
from oarlock_trainer.data.metadata.scan import hand_on_scans, scan, table_folder
from oarlock_trainer.data.metadata.table import MANIFEST, Table, TableManifest, open_table, publish
from oarlock_trainer.data.pair_sizes import pair_channels
from oarlock_trainer.data.prepared import Prepared
from oarlock_trainer.data.seen_texts import seen_texts
from oarlock_trainer.engine.process_group import PREPROCESS_TIMEOUT, START_TIMEOUT
from oarlock_trainer.models.families import family_of, masks_text
from oarlock_trainer.preprocess import data_report
from oarlock_trainer.preprocess.shares import (
    encode_own_captions,
    encode_own_pictures,
    encode_own_seen_captions,
    publish_work,
)
from oarlock_trainer.preprocess.stores import (
    EmbeddingStores,
    FoundEmbeddings,
    beforehand,
    empty_text_key,
    find,
    latents_at,
    missing_latents,
    missing_texts,
    open_stores,
    places_folder,
    read_through,
    remove_unfinished,
    text_places,
)
from oarlock_trainer.preprocess.summary import EncodingWork, summary
from oarlock_trainer.preprocess.units import latent_work, seen_text_work, text_work
from oarlock_trainer.runtime import channel
from oarlock_trainer.runtime.errors import ConfigurationError, StorageError, storage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from oarlock_api.dataset import Dataset
    from oarlock_trainer.data.cache_keys import Encoders
    from oarlock_trainer.data.grouping import Bucket
    from oarlock_trainer.data.quarantine import Rejected
    from oarlock_trainer.engine.process_group import RankGroup
    from oarlock_trainer.runtime.job import Job
    from oarlock_trainer.storage.files import Files
    from oarlock_trainer.storage.locations import Locations


def table_path(output: Path) -> Path:
    """What makes the table of a job published. Where it is, preprocessing was done once."""
    return table_folder(output) / MANIFEST


def prepare(
    job: Job,
    locations: Locations,
    ranks: RankGroup,
    *,
    cut: Callable[[Table], Sequence[Bucket]],
    go_on: Callable[[], None],
    clock: Callable[[], float] = time.monotonic,
) -> Prepared:
    """Make sure that every row of the table has its embeddings.

    `cut` makes the buckets, or says why it cannot, before anything is encoded, and anew if that leaves rows out. `go_on`
    may raise to stop.
    """
    began = clock()
    encoders = fingerprints(Path(job.training.model.path or ""), family_of(job.training.model))
    fingerprint = table_fingerprint(job.training, encoders)
    folder, empty_key = table_folder(job.output), empty_text_key(job, encoders)
    stores = ranks.all_or_none(lambda: open_stores(job, locations))
    ranks.decide(lambda: remove_unfinished(stores))
    published = ranks.decide(lambda: _published(job, folder, fingerprint))
    caches = partial(latents_at, job, locations)
    manifest = published
    if manifest is None:
        manifest = scan(job, locations, ranks, encoders, fingerprint=fingerprint, go_on=go_on, caches=caches).manifest
    table = Table(folder, manifest)
    buckets = cut(table)
    ranks.decide(lambda: forget(places_folder(job)))
    found, made = ranks.decide(lambda: _find(job, table, stores, empty_key)), 0
    if not found.complete:
        encoded, made = _encode(job, locations, ranks, table, stores, found=found, empty_key=empty_key, go_on=go_on)
        if encoded != table.manifest:
            table = Table(folder, encoded)
            buckets = cut(table)
        found = ranks.decide(lambda: _find(job, table, stores, empty_key))
        if not found.complete:
            raise RuntimeError("embeddings that were just written cannot be found: do all nodes mount one storage?")
    stores_read = read_through(job, stores.all)
    latents = EmbeddingIndex(found.latents, stores_read[: len(stores.latents)])
    texts = EmbeddingIndex(found.texts, stores_read[len(stores.latents) :]) if found.texts else None
    if table.manifest != published:
        ranks.decide(lambda: _publish(folder, table.manifest))
        ranks.decide(lambda: _hand_on(job, locations, encoders, table.manifest, caches))
    if ranks.rank_info.is_leader:
        with storage("writing the data manifest"):
            report = data_report.write(job, table, stores, latents=latents, texts=texts, encoders=encoders)
        if made or job.training.task is Task.PREPROCESS:
            _tell(job, table.manifest, report, made=made, seconds=clock() - began)
    return Prepared(
        table=table,
        buckets=buckets,
        latents=latents,
        texts=texts,
        empty_text=len(table.text_keys()),
        fingerprint=fingerprint,
        seen=seen_texts(table, job.training),
    )


def _published(job: Job, folder: Path, fingerprint: str) -> TableManifest | None:
    """The published table, where it may be used without a scan."""
    table = open_table(folder)
    trusted = all(dataset.preserve_scan for dataset in job.training.data.datasets)
    if table is None or table.manifest.fingerprint != fingerprint:
        return None
    # Who only fills caches and starts again has seen new pictures come; what a kill interrupted was not published yet.
    earlier_attempt = table.manifest.job_uid == job.file.job_uid and job.training.task is Task.TRAIN
    return table.manifest if trusted or earlier_attempt else None


def _find(job: Job, table: Table, stores: EmbeddingStores, empty_key: bytes) -> FoundEmbeddings:
    with storage("finding the embeddings"):
        return find(job, table, stores, empty_key)


def _hand_on(
    job: Job, locations: Locations, encoders: Encoders, manifest: TableManifest, caches: Callable[[Dataset], Files]
) -> None:
    """Lay the scan beside the caches; where those cannot be written to, a later job scans anew."""
    try:
        hand_on_scans(job, locations, encoders, manifest, caches)
    except (ConfigurationError, StorageError) as error:
        channel.send(channel.Event.NOTE, message=f"the scan is not handed on to other jobs: {error}")


def _publish(folder: Path, manifest: TableManifest) -> None:
    with storage("publishing the metadata table"):
        publish(folder, manifest)


def _encode(
    job: Job,
    locations: Locations,
    ranks: RankGroup,
    table: Table,
    stores: EmbeddingStores,
    *,
    found: FoundEmbeddings,
    empty_key: bytes,
    go_on: Callable[[], None],
) -> tuple[TableManifest, int]:
    """Encode what is missing, each rank its share.

    Returns the table without the pictures that cannot be encoded, and how many embeddings were made.
    """
    if job.training.data.on_missing_embeds is OnMissingEmbeds.FAIL:
        raise ConfigurationError(
            f"{found.missing_latents} latents and {found.missing_texts} text embeddings are not cached, and "
            "data.onMissingEmbeds is Fail: correct data.imageEmbeds and data.textEmbeds, run a job with task: "
            "Preprocess first, or set onMissingEmbeds: Encode"
        )
    channel.send(channel.Event.PHASE, name=PodPhase.PREPROCESSING)
    files = ranks.decide(lambda: _work(job, table, stores, found, empty_key))
    most = ranks.decide(lambda: _most(job, table.manifest))
    ranks.bound_waiting(PREPROCESS_TIMEOUT)

    def bound(rejected: Sequence[tuple[int, Rejected]]) -> None:
        # Each rank knows its own: what they are together is told at the end.
        if len(dict(rejected)) > most:
            _report(job, table.manifest, rejected)

    def captions() -> list[tuple[int, Rejected]]:
        if seen := seen_texts(table, job.training):
            return encode_own_seen_captions(
                job, locations, ranks, seen, files["text"], stores=stores, empty_key=empty_key, bound=bound, go_on=go_on
            )
        encode_own_captions(job, ranks, table, files["text"], stores=stores, empty_key=empty_key, go_on=go_on)
        return []

    def pictures() -> list[tuple[int, Rejected]]:
        return encode_own_pictures(
            job, locations, ranks, table, files["latents"], stores=stores, bound=bound, go_on=go_on
        )

    gathered = [*ranks.shares(captions, go_on), *ranks.shares(pictures, go_on)]
    ranks.bound_waiting(START_TIMEOUT)
    channel.send(channel.Event.PHASE, name=PodPhase.STARTING)
    if ranks.device.type == "cuda":
        torch.cuda.empty_cache()  # the encoders are gone; what they held is wanted for the transformer
    rejected = [item for some in gathered for item in some]
    made = sum(len(np.load(file, mmap_mode="r")) for file in files.values()) - len(rejected)
    if not rejected:
        return table.manifest, made
    return ranks.decide(lambda: _without(job, table, stores, rejected, empty_key)), made


def _work(job: Job, table: Table, stores: EmbeddingStores, found: FoundEmbeddings, empty_key: bytes) -> dict[str, Path]:
    places, texts = EmbeddingIndex(found.latents, stores.latents), text_places(found.texts, stores)
    family, unpadded = family_of(job.training.model), masks_text(job.training)
    encoded = family.encoded
    absent, wanted = missing_latents(job, table, places), beforehand(job, table)
    pairs = [pair_channels(one, job.training.model, encoded.channels) for one in job.training.data.datasets]
    lacking = missing_texts(job, table, texts)
    if seen := seen_texts(table, job.training):
        text = seen_text_work(seen.keys(empty_key), encoded, missing=lacking, wanted=seen.wanted())
    else:
        text = text_work(table, encoded, missing=lacking, unpadded=unpadded)
    with storage("sharing out the work"):
        latents = latent_work(table, encoded, grid=family.grid, missing=absent, wanted=wanted, pairs=pairs)
        return publish_work(job, latents=latents, text=text)


def _without(
    job: Job, table: Table, stores: EmbeddingStores, rejected: Sequence[tuple[int, Rejected]], empty_key: bytes
) -> TableManifest:
    """The table without rows whose pictures cannot be used, and without others that share their keys.

    Raises ConfigurationError where there are too many.
    """
    _report(job, table.manifest, rejected)
    found = _find(job, table, stores, empty_key)
    latents = EmbeddingIndex(found.latents, stores.latents)
    missing = np.flatnonzero(missing_latents(job, table, latents))
    keys = entry_keys(table, len(latents))
    own = keys.reshape(-1, len(table), 2)[:, list(dict(rejected))].reshape(-1, 2)
    unusable = missing[SortedKeys(own).find(keys[missing]) >= 0] % len(table)
    unseen: list[int] = []
    if seen := seen_texts(table, job.training):  # of a reference that cannot be used there are no texts, either
        pairs = table.pair_keys()
        rows = np.unique(seen.rows[missing_texts(job, table, text_places(found.texts, stores))])
        bad = SortedKeys(pairs[np.array(list(dict(rejected)), dtype=np.int64)])
        unseen = rows[bad.find(pairs[rows]) >= 0].tolist()
    return replace(table.manifest, left_out=tuple(sorted({*table.manifest.left_out, *unusable.tolist(), *unseen})))


def _most(job: Job, manifest: TableManifest) -> int:
    """How many pictures the encoders may find bad beside those that the scan has found."""
    counts = counts_of(table_folder(job.output), manifest)
    bad = sum(total(one.bad for one in counts).values())
    return quarantine.allowed(sum(one.found for one in counts)) - bad


def _report(job: Job, manifest: TableManifest, rejected: Sequence[tuple[int, Rejected]]) -> None:
    """Tell of the scan's bad pictures and the encoders'. Raises ConfigurationError where there are too many."""
    folder, own = table_folder(job.output), list(dict(rejected).values())  # both ways are one picture
    everything = [*rejected_in(folder, manifest, most=quarantine.MOST), *own]
    counts = counts_of(folder, manifest)
    bad = total([*(one.bad for one in counts), quarantine.kinds(own)])
    quarantine.report(job.output, everything, pictures=sum(one.found for one in counts), counts=bad)


def _tell(job: Job, manifest: TableManifest, report: Mapping[str, Any], *, made: int, seconds: float) -> None:
    """Say at the end what there is."""
    counts = counts_of(table_folder(job.output), manifest)
    quarantined = sum(total(one.bad for one in counts).values()) + len(manifest.left_out)
    work = EncodingWork(made=made, quarantined=quarantined, found=sum(one.found for one in counts), seconds=seconds)
    channel.tell(summary(report, work))
