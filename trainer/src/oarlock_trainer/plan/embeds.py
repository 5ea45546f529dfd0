"""How many bytes the cached embeddings of a job take: a model, from the sizes of its buckets."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from oarlock_trainer.data.buckets import Size
    from oarlock_trainer.models.encoded import Encoded
    from oarlock_trainer.models.family import Grid


def total(pictures: Iterable[tuple[Size, int]], captions: int, encoded: Encoded, grid: Grid) -> tuple[int, int]:
    """(latents, text) in bytes, of pictures and videos by size, and distinct captions."""
    latents = sum(
        grid.latent_frames(size.frames) * encoded.latents(size.width, size.height) * count for size, count in pictures
    )
    return latents, captions * encoded.caption


def of_pairs(pairs: Iterable[tuple[Size, int, int]], encoded: Encoded) -> int:
    """Of their pairs, in bytes: size of the picture, how many, channels."""
    return sum(encoded.bytes_of(channels, size.width, size.height) * count for size, count, channels in pairs)
