"""Pictures -> latents, in batches of one size."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np
import torch
from PIL import Image, ImageOps

from oarlock_trainer.data.quarantine import UNREADABLE, Rejected

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from oarlock_trainer.data.buckets import Cut
    from oarlock_trainer.data.metadata.table import Picture
    from oarlock_trainer.data.shards import ShardWriter
    from oarlock_trainer.models.flux.encode import PictureEncoder


def decode(path: Path, cut: Cut) -> np.ndarray:
    """A picture's pixels as they are trained: (H, W, 3) uint8 of the cut's target.

    Raises OSError and its kin where the file is damaged.
    """
    with Image.open(path) as opened:
        picture = ImageOps.exif_transpose(opened)
        if picture.mode in {"RGBA", "LA", "P"}:
            # Transparent parts become white: what lies under them was never meant to be seen.
            layer = picture.convert("RGBA")
            picture = Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer)
        picture = picture.convert("RGB")
    if picture.size != (cut.scaled.width, cut.scaled.height):
        picture = picture.resize((cut.scaled.width, cut.scaled.height), Image.Resampling.LANCZOS)
    right, lower = cut.left + cut.target.width, cut.top + cut.target.height
    return np.asarray(picture.crop((cut.left, cut.top, right, lower)))


def encode_pictures(
    work: Sequence[tuple[Picture, Path, Cut]],
    encoder: PictureEncoder,
    writer: ShardWriter,
    *,
    batch_size: int,
    go_on: Callable[[], None],
) -> list[Rejected]:
    """Encode pictures and append them to `writer`; returns those whose pixels cannot be read.

    `go_on` is called before each batch and may raise to stop.
    """
    rejected: list[Rejected] = []
    ordered = sorted(work, key=lambda item: (item[0].target, item[0].name))
    for _, group in groupby(ordered, key=lambda item: item[0].target):
        members = list(group)
        for start in range(0, len(members), batch_size):
            go_on()
            readable: list[tuple[Picture, np.ndarray]] = []
            for picture, path, cut in members[start : start + batch_size]:
                try:
                    readable.append((picture, decode(path, cut)))
                except UNREADABLE as error:
                    reason = f"unreadable: {error}"
                    rejected.append(Rejected(picture.dataset, picture.name, "unreadable", reason))
            if not readable:
                continue
            seeds = [int(picture.image_key[:15], 16) for picture, _ in readable]
            latents = encoder.encode(np.stack([pixels for _, pixels in readable]), seeds)
            for (picture, _), latent in zip(readable, latents, strict=True):
                if not bool(torch.isfinite(latent.float()).all()):
                    rejected.append(
                        Rejected(picture.dataset, picture.name, "not encodable", "the VAE gave non-finite latents")
                    )
                    continue
                channels, height, width = latent.shape
                writer.append(picture.image_key, bits(latent), (channels, height, width))
    return rejected


def bits(tensor: torch.Tensor) -> np.ndarray:
    """The bits of a bfloat16 tensor as uint16: numpy knows no bfloat16."""
    array: np.ndarray = tensor.contiguous().view(torch.int16).numpy().view(np.uint16)
    return array
