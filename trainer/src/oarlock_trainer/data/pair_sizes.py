"""What a data set's pairs add to a sample: a reference may have as many tokens as its picture, and all have channels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oarlock_api.dataset import ConditioningKind
from oarlock_trainer.data.buckets import Size
from oarlock_trainer.models.families import family_of, reference_of

if TYPE_CHECKING:
    from oarlock_api.dataset import Dataset
    from oarlock_api.weights import Model
    from oarlock_trainer.data.buckets import Cut
    from oarlock_trainer.models.family import Reference, Sight


def reference_in(dataset: Dataset, model: Model) -> Reference | None:
    """What the references of a data set are to the model; None where it has none."""
    return reference_of(model) if dataset.has(ConditioningKind.REFERENCE) else None


def seen_cut(cut: Cut, sight: Sight | None) -> Cut:
    """What the text encoder sees of a reference of which this is cut: the same part, at the encoder's own size."""
    return cut.at(Size(*sight.size(cut.target.width, cut.target.height))) if sight else cut


def pictures_of(dataset: Dataset, model: Model) -> int:
    """Pictures whose tokens a sample of a data set has."""
    reference = reference_in(dataset, model)
    return 1 + (reference.pictures if reference else 0)


def image_tokens(dataset: Dataset, size: Size, model: Model) -> int:
    """Of a sample of this size in pixels."""
    return pictures_of(dataset, model) * family_of(model).grid.tokens(size.width, size.height, size.frames)


def pair_channels(dataset: Dataset, model: Model, latents: int) -> int:
    """Of a cached pair, where a picture has so many `latents`; 0 where a data set has no pairs."""
    if dataset.conditioning is None:
        return 0
    reference = reference_in(dataset, model)
    return reference.channels(latents, family_of(model).grid) if reference else 1
