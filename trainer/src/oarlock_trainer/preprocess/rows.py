"""From the datasets' sources to the rows of the metadata table: which pictures, how they are cut, what their keys are."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from oarlock_api.contract.layout import PRIVATE
from oarlock_trainer import channel
from oarlock_trainer.beat import Beat, told
from oarlock_trainer.data import buckets, quarantine
from oarlock_trainer.data.draws import content_draws
from oarlock_trainer.data.metadata import discovery
from oarlock_trainer.data.metadata.table import Picture
from oarlock_trainer.data.sources.local import LocalSource
from oarlock_trainer.errors import ConfigurationError
from oarlock_trainer.preprocess.keys import image_key, text_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oarlock_api.dataset import Dataset
    from oarlock_api.training import Training
    from oarlock_trainer.engine.process_group import Ranks
    from oarlock_trainer.job import Job


@dataclass(frozen=True, slots=True)
class Encoders:
    """Fingerprints of the frozen encoders: what makes cached embeddings valid."""

    vae: str
    text: str


def source_of(dataset: Dataset) -> LocalSource:
    """The dataset's source.

    Raises ConfigurationError where it is not there.
    """
    return LocalSource(Path(dataset.source.path or ""))


def scan(job: Job, ranks: Ranks, encoders: Encoders) -> list[Picture]:
    """Read the headers of all datasets, each rank its share; every rank gets all rows, in one order.

    Raises ConfigurationError where a dataset is empty, may not be read, or has too many bad pictures.
    """
    pictures: list[Picture] = []
    rejected: list[quarantine.Rejected] = []
    for dataset in job.training.data.datasets:
        source = ranks.all_or_none(partial(source_of, dataset))
        names = ranks.decide(source.pictures)
        share = told(names[ranks.place.rank :: ranks.place.world_size], Beat())
        found, bad = ranks.all_or_none(partial(discovery.scan, dataset, source, share))
        rows = [row for one in found if (row := _row(job.training, dataset, one, encoders))]
        gathered = ranks.gather((rows, bad))
        rejected += [item for _, some in gathered for item in some]
        report(job, ranks, rejected, len(names))
        everything = sorted((row for some, _ in gathered for row in some), key=lambda row: row.name)
        if not everything:
            raise ConfigurationError(
                f'dataset "{dataset.name}": no picture is left of {len(names)} below {dataset.source.path}: '
                "correct source.path, or loosen size.minimum and size.maximumUpscalePercent"
            )
        pictures += _limited(everything, dataset.max_samples, job.training.seed)
    return pictures


def picture_cut(training: Training, dataset: Dataset, name: str, size: buckets.Size) -> buckets.Cut:
    """Scale and crop of a picture: a function of the settings and its name alone, so that it can be told again."""
    draws = content_draws(f"{training.seed}/{name}", 3)
    aspect = 1.0
    if training.aspect_buckets:
        aspect = buckets.crop_aspect(size, aspect=dataset.crop.aspect, choices=dataset.crop.aspects, draw=draws[0])
    target = buckets.target_size(
        aspect,
        resolution=dataset.resolution or training.resolution,
        kind=dataset.resolution_type or training.resolution_type,
    )
    return buckets.cut(size, target, style=dataset.crop.style, draws=(draws[1], draws[2]))


def report(job: Job, ranks: Ranks, rejected: Sequence[quarantine.Rejected], pictures: int) -> None:
    """Tell of pictures that are left out.

    Raises ConfigurationError where there are too many.
    """
    if not rejected:
        return
    path = job.output / PRIVATE / "quarantine.jsonl"
    if ranks.place.is_leader:
        quarantine.write(path, rejected)
        channel.send(channel.Event.NOTE, message=quarantine.summary(rejected))
    quarantine.check_bound(rejected, pictures=pictures, listed_in=path)


def _row(training: Training, dataset: Dataset, found: discovery.Found, encoders: Encoders) -> Picture | None:
    """A picture's row, or None where the dataset's size limits leave it out."""
    kind, limits = dataset.resolution_type or training.resolution_type, dataset.size
    if limits.minimum is not None and buckets.is_below(found.size, limits.minimum, kind):
        return None
    cut = picture_cut(training, dataset, found.name, found.size)
    highest = limits.maximum_upscale_percent
    if highest is not None and buckets.upscale_percent(found.size, cut.target) > highest:
        return None
    return Picture(
        dataset=dataset.name,
        name=found.name,
        width=found.size.width,
        height=found.size.height,
        target_width=cut.target.width,
        target_height=cut.target.height,
        caption=found.caption,
        image_key=image_key(
            source=str(dataset.source.path), name=found.name, version=found.version, cut=cut, encoder=encoders.vae
        ),
        text_key=text_key(caption=found.caption, encoder=encoders.text, unpadded=training.objective.attention_mask),
    )


def _limited(pictures: list[Picture], maximum: int | None, seed: int) -> list[Picture]:
    """At most `maximum` pictures, chosen by seed and name, so that adding pictures changes few choices."""
    if maximum is None or len(pictures) <= maximum:
        return pictures
    chosen = sorted(pictures, key=lambda picture: content_draws(f"{seed}/take/{picture.name}", 1))[:maximum]
    return sorted(chosen, key=lambda picture: picture.name)
