"""What Qwen2.5-VL is given of a picture: patches of 14 x 14 pixels, of which 2 x 2 together become one token.

What transformers' processor of Qwen2-VL makes, which is no use here: with it comes one of videos, which needs torchvision.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from oarlock_trainer.models.encoded import said

if TYPE_CHECKING:
    from pathlib import Path

PATCH, _MERGED, _FRAMES = 14, 2, 2
"""Pixels of a patch's edge, patches of a token's edge, and how many frames a patch has: of a picture the same one twice."""
EDGE = PATCH * _MERGED
"""Pixels of a token's edge."""
_MEAN = np.array((0.48145466, 0.4578275, 0.40821073), dtype=np.float32)
_DEVIATION = np.array((0.26862954, 0.26130258, 0.27577711), dtype=np.float32)
"""Of red, green and blue, 0 .. 1: those of CLIP."""
PROCESSOR = "processor"
"""The folder with its settings and its tokenizer."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Pixels of a picture that is seen; the published processor's allow all that are asked for here."""

    least: int = 56 * 56
    most: int = 12_845_056

    def size(self, width: int, height: int) -> tuple[int, int]:
        """Width and height of what is cut into tokens, both multiples of `EDGE`, within the bounds, of about this shape."""
        wide, high = (round(side / EDGE) * EDGE for side in (width, height))
        if wide * high > self.most:
            shrunk = sqrt(width * height / self.most)
            wide, high = (max(floor(side / shrunk / EDGE), 1) * EDGE for side in (width, height))
        elif wide * high < self.least:
            grown = sqrt(self.least / (width * height))
            wide, high = (ceil(side * grown / EDGE) * EDGE for side in (width, height))
        return wide, high


def read_bounds(model: Path) -> Bounds:
    """Of a model's processor; the published ones where its settings are not here.

    They stand in a file of their own, or within the processor's, and each has two ways to be called.
    """
    folder = model / PROCESSOR
    own: dict[str, Any] = said(folder, "preprocessor_config.json")
    own = own or said(folder, "processor_config.json").get("image_processor") or {}
    size = own.get("size") or {}
    least, most = (
        own.get(old) or size.get(old) or size.get(new)
        for old, new in (("min_pixels", "shortest_edge"), ("max_pixels", "longest_edge"))
    )
    published = Bounds()
    return Bounds(least or published.least, most or published.most)


def tokens(grid: tuple[int, int]) -> int:
    """Of a picture of so many rows and columns of patches."""
    rows, columns = grid
    return rows * columns // _MERGED**2


def patches(picture: np.ndarray, bounds: Bounds) -> tuple[np.ndarray, tuple[int, int]]:
    """(H, W, 3) uint8 -> (rows x columns, 3 x 2 x 14 x 14) float32, and rows and columns of patches.

    The four patches of a token follow each other. A patch is colour, frame, row, column.
    """
    wide, high = bounds.size(picture.shape[1], picture.shape[0])
    scaled = Image.fromarray(picture).resize((wide, high), Image.Resampling.BICUBIC)
    normal = (np.asarray(scaled, dtype=np.float32) / 255 - _MEAN) / _DEVIATION
    rows, columns = high // EDGE, wide // EDGE
    cut = normal.reshape(rows, _MERGED, PATCH, columns, _MERGED, PATCH, 3).transpose(0, 3, 1, 4, 6, 2, 5)
    frames = np.repeat(cut[:, :, :, :, :, None], _FRAMES, axis=5)
    return frames.reshape(rows * columns * _MERGED**2, -1), (rows * _MERGED, columns * _MERGED)
