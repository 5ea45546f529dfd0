"""The pixels of pictures, and of their pairs, as they are trained: 8 bits a channel, turned, cut and mirrored."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageOps

from oarlock_trainer.data.entries import Pair
from oarlock_trainer.data.picture_depth import depth_of
from oarlock_trainer.data.picture_kinds import load_pixels, open_picture
from oarlock_trainer.data.png_checksums import check_pixels
from oarlock_trainer.preprocess.masks import decode_mask
from oarlock_trainer.preprocess.shapes import check_shape, check_size

if TYPE_CHECKING:
    from oarlock_trainer.data.buckets import Cut, Size
    from oarlock_trainer.data.metadata.table import Picture


def decode(
    content: bytes,
    cut: Cut,
    size: Size | None = None,
    *,
    mirrored: bool = False,
    any_size: bool = False,
    holes: bool = False,
) -> np.ndarray:
    """A picture's pixels as they are trained: (H, W, 3) uint8 of the cut's target, with `holes` (H, W, 4).

    `size` is the one that the cut was made for, as shown; without it nothing is compared, and with `any_size` only the shape.
    `mirrored`: left for right, after the cut. Raises OSError and its kin where the file is damaged, OtherSizeError where the
    picture has another size, and OtherShapeError.
    """
    check_pixels(content)
    with open_picture(io.BytesIO(content)) as opened:
        depth = depth_of(opened)
        load_pixels(opened)
        picture = ImageOps.exif_transpose(opened)
        if size is not None and any_size:
            check_shape(picture, size)
        elif size is not None:
            check_size(picture.width, picture.height, size)
        picture = depth.in_eight_bits(picture)
        if holes and not picture.has_transparency_data:
            raise ValueError("it has no alpha channel: what is to be filled in is transparent in it")
        if holes:
            picture = picture.convert("RGBA")
        elif picture.has_transparency_data:
            # Transparent parts become white: what lies under them was never meant to be seen.
            layer = picture.convert("RGBA")
            if not layer.getchannel("A").getbbox():
                raise ValueError("it is transparent everywhere, so all of it would be white")
            picture = Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer)
        picture = picture if holes else picture.convert("RGB")
    if picture.size != (cut.scaled.width, cut.scaled.height):
        picture = picture.resize((cut.scaled.width, cut.scaled.height), Image.Resampling.LANCZOS)
    right, lower = cut.left + cut.target.width, cut.top + cut.target.height
    picture = picture.crop((cut.left, cut.top, right, lower))
    return np.asarray(ImageOps.mirror(picture) if mirrored else picture)


def decoded(content: bytes, picture: Picture, cut: Cut, pair: Pair | None) -> np.ndarray:
    """Pixels of a picture, or of its pair, as they are trained. Raises what `decode` and `decode_mask` do."""
    if pair is Pair.MASK:
        return decode_mask(content, cut, picture.size, mirrored=picture.mirrored)
    return decode(
        content, cut, picture.size, mirrored=picture.mirrored, any_size=pair is not None, holes=pair is Pair.HOLES
    )
