"""Masks of pictures -> what the loss is weighed by: one number for each latent pixel, 1 where the picture counts.

A mask is cut by its picture's own cut, so that both show the same. Then each latent pixel gets the mean of its pixels: the
grey of a mask is the share by which they count.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np
import torch
from PIL import Image, ImageOps

from oarlock_trainer.data.picture_depth import EIGHT_BITS, depth_of
from oarlock_trainer.data.picture_kinds import load_pixels, open_picture
from oarlock_trainer.data.png_checksums import check_pixels
from oarlock_trainer.preprocess.shapes import check_shape

if TYPE_CHECKING:
    from oarlock_trainer.data.buckets import Cut, Size

_WHITE = 255


def decode_mask(content: bytes, cut: Cut, size: Size, *, mirrored: bool = False) -> np.ndarray:
    """A mask's grey levels as its picture is trained: (H, W) uint8 of the cut's target.

    `size` is the picture's, as shown; the mask may be larger or smaller, in the same shape. Transparent parts are black.
    Raises OSError and its kin where the file is damaged, OtherShapeError, and ValueError where it has more than 8 bits.
    """
    check_pixels(content)
    with open_picture(io.BytesIO(content)) as opened:
        if opened.mode not in EIGHT_BITS:
            raise ValueError(
                f"it has more than 8 bits a pixel (mode {opened.mode}): save it as a grey picture of 8 bits"
            )
        depth = depth_of(opened)
        load_pixels(opened)
        mask = ImageOps.exif_transpose(opened)
        check_shape(mask, size)
        mask = depth.in_eight_bits(mask)
        if mask.has_transparency_data:
            layer = mask.convert("RGBA")
            mask = Image.alpha_composite(Image.new("RGBA", layer.size, "black"), layer)
        mask = mask.convert("L")
    # Of whole pixels: what sharpens a picture would ring around a mask's borders.
    mask = mask.resize((cut.scaled.width, cut.scaled.height), Image.Resampling.BOX)
    mask = mask.crop((cut.left, cut.top, cut.left + cut.target.width, cut.top + cut.target.height))
    return np.asarray(ImageOps.mirror(mask) if mirrored else mask)


def average(masks: np.ndarray, pixels: int) -> torch.Tensor:
    """(B, H, W) uint8 -> (B, 1, h, w) bfloat16, 0 .. 1: means over squares of `pixels` x `pixels`. White is exactly 1."""
    count, height, width = masks.shape
    squares = masks.reshape(count, height // pixels, pixels, width // pixels, pixels)
    shares = squares.sum(axis=(2, 4), dtype=np.int64) / (_WHITE * pixels**2)
    return torch.from_numpy(shares)[:, None].to(torch.bfloat16)
