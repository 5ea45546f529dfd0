"""How many image tokens a sample has: its picture's, and as many again of its reference, which has the picture's size."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oarlock_api.dataset import ConditioningKind

if TYPE_CHECKING:
    from oarlock_api.dataset import Dataset
    from oarlock_trainer.data.buckets import Size
    from oarlock_trainer.models.family import Grid


def pictures_of(dataset: Dataset) -> int:
    """Pictures with latents that a sample of a data set has."""
    return 2 if dataset.has(ConditioningKind.REFERENCE) else 1


def image_tokens(dataset: Dataset, size: Size, grid: Grid) -> int:
    """Of a sample of this size in pixels."""
    return pictures_of(dataset) * grid.tokens(size.width, size.height)
