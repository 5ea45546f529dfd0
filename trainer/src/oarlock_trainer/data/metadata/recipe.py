"""Everything that decides about the rows of a data set, but for the pictures themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from oarlock_api.dataset import CropAspect, CropStyle, ResolutionType
from oarlock_trainer.data import buckets
from oarlock_trainer.data.metadata import keys
from oarlock_trainer.data.pair_sizes import reference_in
from oarlock_trainer.models.families import family_of, masks_text

if TYPE_CHECKING:
    import pyarrow as pa

    from oarlock_api.dataset import Dataset
    from oarlock_api.training import Training
    from oarlock_trainer.data.cache_keys import Encoders

_PASSING = {
    "name", "role", "repeats", "probability", "preserve_scan", "start_step", "end_step", "image_embeds", "random_flip",
}  # fmt: skip
"""Fields of a data set that change no row."""


def table_fingerprint(training: Training, encoders: Encoders) -> str:
    """Tells the settings that a table was made with from others: those of all its rows, and what data sets are called."""
    return keys.digest(*([one.name, one.role, *_settings(training, one, encoders)] for one in training.data.datasets))


def _settings(training: Training, dataset: Dataset, encoders: Encoders) -> list[object]:
    """What decides about a data set's rows.

    Fields that are not set are left out: a later version's new field that is absent changes no fingerprint.
    """
    reference = reference_in(dataset, training.model)
    return [
        dataset.model_dump(mode="json", exclude=_PASSING, exclude_none=True),
        [encoders.vae, encoders.text],
        [training.resolution, training.resolution_type, training.aspect_buckets],
        masks_text(training),
        training.seed,
        *([reference] if reference else []),  # which of a reference's forms is meant by the keys of pairs
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """The settings of one data set. `source` is the place that names are relative to (Files.where), `pairs` that of pairs."""

    training: Training
    dataset: Dataset
    source: str
    encoders: Encoders
    pairs: str = ""

    @property
    def kind(self) -> ResolutionType:
        """What the data set's resolution measures."""
        return self.dataset.resolution_type or self.training.resolution_type

    @property
    def pair_encoder(self) -> str:
        """What makes the cached pairs: of masks averages over a latent's pixels, whichever VAE there is."""
        if reference := reference_in(self.dataset, self.training.model):
            return f"reference {reference} by {self.encoders.vae}"
        return f"mask of {family_of(self.training.model).grid.pixels} pixels"

    def fingerprint(self) -> str:
        """Tells these settings from others."""
        pairs = [self.pairs] if self.pairs else []
        return keys.digest(self.source, *pairs, *_settings(self.training, self.dataset, self.encoders))


def cuts(training: Training, dataset: Dataset, names: pa.Array, size: tuple[np.ndarray, np.ndarray]) -> buckets.Cuts:
    """Scale and crop of pictures: a function of the settings, name and size alone, so that it can be told again."""
    crop, kind = dataset.crop, dataset.resolution_type or training.resolution_type
    draws = np.zeros((len(names), 3))
    if crop.aspect is CropAspect.RANDOM or crop.style is CropStyle.RANDOM:
        draws = keys.draws(names, seed=training.seed, purpose="crop")
    aspects = np.ones(len(names))
    if training.aspect_buckets:
        aspects = buckets.crop_aspects(*size, aspect=crop.aspect, choices=crop.aspects, draws=draws[:, 0])
    target = buckets.target_sizes(
        aspects,
        resolution=dataset.resolution or training.resolution,
        kind=kind,
        step=family_of(training.model).grid.bucket,
        upright=np.less(*size),
    )
    return buckets.cuts(
        size, target, style=crop.style, draws=(draws[:, 1], draws[:, 2]), limits=dataset.size, kind=kind
    )
