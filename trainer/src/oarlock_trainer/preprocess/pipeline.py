"""From the datasets of a job to everything a training step reads: scan -> buckets -> encode -> publish.

All ranks work together: each reads the headers and encodes the embeddings of its share. What is published already is
skipped, and a table that an earlier attempt of the same job published is taken as it is, without looking at the source.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import torch

from oarlock_api.contract.layout import PRIVATE
from oarlock_api.contract.status import PodPhase
from oarlock_api.data import OnMissingEmbeds
from oarlock_trainer import channel
from oarlock_trainer.beat import Beat
from oarlock_trainer.data.buckets import Size
from oarlock_trainer.data.metadata.table import Picture, Table, read_table, write_table
from oarlock_trainer.data.shards import ShardWriter
from oarlock_trainer.engine.process_group import PREPROCESS_TIMEOUT, START_TIMEOUT
from oarlock_trainer.errors import ConfigurationError, storage
from oarlock_trainer.preprocess.keys import encoder_fingerprint, text_key
from oarlock_trainer.preprocess.rows import Encoders, picture_cut, report, scan, source_of
from oarlock_trainer.preprocess.stores import (
    Missing,
    Stores,
    find_missing,
    latent_folder,
    open_stores,
    remove_unpublished,
    text_folder,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from oarlock_api.training import Training
    from oarlock_trainer.data.quarantine import Rejected
    from oarlock_trainer.engine.process_group import Ranks
    from oarlock_trainer.job import Job

_VAE_BATCH, _TEXT_BATCH = 4, 16

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Prepared:
    """Everything that training reads: the table, where its embeddings are, and what both were made from."""

    pictures: tuple[Picture, ...]
    stores: Stores
    empty_text_key: str
    fingerprint: str


def table_path(output: Path) -> Path:
    """Where the published table lies. Where it is, preprocessing was done once."""
    return output / PRIVATE / "data" / "table.parquet"


def prepare(
    job: Job, ranks: Ranks, *, check: Callable[[Sequence[Picture]], None], go_on: Callable[[], None]
) -> Prepared:
    """Make sure that every picture of the table has its embeddings.

    `check` judges the rows before anything is encoded, and again afterwards. `go_on` may raise to stop.
    """
    encoders = _fingerprints(Path(job.training.model.path or ""))
    fingerprint = _fingerprint(job.training, encoders)
    empty = text_key(caption="", encoder=encoders.text, unpadded=job.training.objective.attention_mask)
    published = _published(job, ranks, fingerprint)
    pictures = scan(job, ranks, encoders) if published is None else published
    check(pictures)
    missing = ranks.decide(lambda: find_missing(job, pictures, empty))
    if missing:
        pictures = _encode(job, ranks, pictures, missing, go_on)
        check(pictures)
        if ranks.decide(lambda: bool(find_missing(job, pictures, empty))):
            raise RuntimeError("embeddings that were just written cannot be found: do all nodes mount one storage?")
    if (published is None or missing) and ranks.place.is_leader:
        with storage("publishing the metadata table"):
            table = Table(pictures=tuple(pictures), fingerprint=fingerprint, job_uid=job.file.job_uid)
            write_table(table_path(job.output), table)
    return Prepared(tuple(pictures), open_stores(job), empty, fingerprint)


def _published(job: Job, ranks: Ranks, fingerprint: str) -> Sequence[Picture] | None:
    """Rows of the published table, where it may be used without a scan; rank 0 decides for all."""
    trusted = all(dataset.preserve_scan for dataset in job.training.data.datasets)

    def usable() -> bool:
        table = read_table(table_path(job.output))
        return table is not None and table.fingerprint == fingerprint and (trusted or table.job_uid == job.file.job_uid)

    table = read_table(table_path(job.output)) if ranks.decide(usable) else None
    return None if table is None else table.pictures


def _encode(
    job: Job, ranks: Ranks, pictures: Sequence[Picture], missing: Missing, go_on: Callable[[], None]
) -> list[Picture]:
    """Encode what is missing, each rank its share; returns the pictures that could be."""
    if job.training.data.on_missing_embeds is OnMissingEmbeds.FAIL:
        raise ConfigurationError(
            f"{len(missing.latents)} latents and {len(missing.captions)} text embeddings are not cached, and "
            "data.onMissingEmbeds is Fail: correct data.imageEmbeds and data.textEmbeds, run a job with task: "
            "Preprocess first, or set onMissingEmbeds: Encode"
        )
    channel.send(channel.Event.PHASE, name=PodPhase.PREPROCESSING)
    if ranks.place.is_leader:
        remove_unpublished(job)
    ranks.barrier()
    ranks.bound_waiting(PREPROCESS_TIMEOUT)
    place, beat = ranks.place, Beat()

    def on() -> None:
        go_on()
        beat()

    captions = sorted(missing.captions.items())[place.rank :: place.world_size]
    mine = [pictures[row] for row in missing.latents][place.rank :: place.world_size]
    ranks.all_or_none(lambda: _then_wait(lambda: _encode_captions(job, ranks, captions, on)))
    gathered = ranks.gather(ranks.all_or_none(lambda: _then_wait(lambda: _encode_pictures(job, ranks, mine, on))))
    ranks.bound_waiting(START_TIMEOUT)
    channel.send(channel.Event.PHASE, name=PodPhase.STARTING)
    if ranks.device.type == "cuda":
        torch.cuda.empty_cache()  # the encoders are gone; what they held is wanted for the transformer
    rejected = [item for some in gathered for item in some]
    report(job, ranks, rejected, len(pictures))
    bad = {(item.dataset, item.name) for item in rejected}
    return [picture for picture in pictures if (picture.dataset, picture.name) not in bad]


def _then_wait(work: Callable[[], Result]) -> Result:
    """Do this rank's share; how long the others need for theirs is none of its own slowness."""
    channel.send(channel.Event.WORKING)
    try:
        return work()
    finally:
        channel.send(channel.Event.WAITING)


def _encode_captions(job: Job, ranks: Ranks, work: Sequence[tuple[str, str]], go_on: Callable[[], None]) -> None:
    if not work:
        return
    from oarlock_trainer.models.flux.encode import CaptionEncoder  # noqa: PLC0415 - only where something is missing
    from oarlock_trainer.preprocess.text import encode_captions  # noqa: PLC0415

    training = job.training
    encoder = CaptionEncoder(Path(training.model.path or ""), training.model.flavor, ranks.device)
    with storage("writing text embeddings"), ShardWriter(text_folder(job), owner=_owner(job)) as writer:
        encode_captions(
            work,
            encoder,
            writer,
            batch_size=training.data.tuning.text_batch_size or _TEXT_BATCH,
            unpadded=training.objective.attention_mask,
            go_on=go_on,
        )


def _encode_pictures(job: Job, ranks: Ranks, mine: Sequence[Picture], go_on: Callable[[], None]) -> list[Rejected]:
    if not mine:
        return []
    from oarlock_trainer.models.flux.encode import PictureEncoder  # noqa: PLC0415 - only where something is missing
    from oarlock_trainer.preprocess.latents import encode_pictures  # noqa: PLC0415

    training = job.training
    encoder = PictureEncoder(Path(training.model.path or ""), ranks.device)
    rejected: list[Rejected] = []
    for dataset in training.data.datasets:
        source = source_of(dataset)
        work = [
            (picture, source.path(picture.name), picture_cut(training, dataset, picture.name, _size(picture)))
            for picture in mine
            if picture.dataset == dataset.name
        ]
        with storage("writing latents"), ShardWriter(latent_folder(job, dataset), owner=_owner(job)) as writer:
            rejected += encode_pictures(
                work, encoder, writer, batch_size=training.data.tuning.vae_batch_size or _VAE_BATCH, go_on=go_on
            )
    return rejected


def _size(picture: Picture) -> Size:
    return Size(picture.width, picture.height)


def _owner(job: Job) -> str:
    return f"{job.file.job_uid}-a{job.file.attempt}-r{job.place.rank}"


def _fingerprints(model: Path) -> Encoders:
    text = [model / part for part in ("text_encoder", "text_encoder_2", "tokenizer", "tokenizer_2")]
    return Encoders(vae=encoder_fingerprint([model / "vae"]), text=encoder_fingerprint(text))


def _fingerprint(training: Training, encoders: Encoders) -> str:
    """What the table was made from: the settings that decide about its rows, and the encoders.

    Fields that are not set are left out: a later version's new field that is absent changes no fingerprint.
    """
    passing = {"repeats", "probability", "preserve_scan", "start_step", "end_step", "image_embeds"}
    facts = {
        "datasets": [
            dataset.model_dump(mode="json", exclude=passing, exclude_none=True) for dataset in training.data.datasets
        ],
        "vae": encoders.vae,
        "text": encoders.text,
        "resolution": [training.resolution, training.resolution_type, training.aspect_buckets],
        "masked": training.objective.attention_mask,
        "seed": training.seed,
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
