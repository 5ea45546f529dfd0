"""Pictures that have not 8 bits a channel: what they become, and which are refused because nothing says what is white.

Pillow keeps the upper eight bits of colours of 16 bits. Grey levels of 16 bits it would clip at 255, which makes nearly all
of them white, and fractions between 0 and 1 black. So the former become their upper eight bits, too, and the latter are
refused, as whole numbers of 32 bits are: their files do not say which numbers stand for black and for white.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from PIL import Image
from PIL.PngImagePlugin import PngImageFile
from PIL.TiffImagePlugin import BITSPERSAMPLE, PHOTOMETRIC_INTERPRETATION, TiffImageFile

EIGHT_BITS = frozenset({"1", "L", "LA", "La", "P", "PA", "RGB", "RGBA", "RGBa", "RGBX", "CMYK", "YCbCr", "LAB", "HSV"})
"""Pillow's modes with one byte a channel, or less."""
_GREY_LEVELS = frozenset({"I;16", "I;16L", "I;16B", "I;16N"})
_BYTE, _SIXTEEN = 8, 16
_WHITE_IS_ZERO = 0
_BLACK = 16
"""Below this no eye tells levels of a byte from black: all that 12 bits can say, stored as the lower ones of 16."""


@dataclass(frozen=True, slots=True)
class Depth:
    """The bits of a channel of a picture's file, and whether 0 is white there, which TIFF may say of grey levels."""

    bits: int
    white_is_zero: bool = False

    def in_eight_bits(self, picture: Image.Image) -> Image.Image:
        """The picture, turned or not, with 8 bits a channel, and what is transparent in it.

        Raises ValueError where all of it would be black, as its numbers fill the lower bits alone.
        """
        found = _with_transparent_colour(picture) if picture.mode in EIGHT_BITS else self._grey(picture)
        if self.bits > _BYTE and found.mode in {"L", "LA", "RGB", "RGBA"}:
            brightest = max(np.asarray(found.getchannel(band)).max() for band in found.getbands() if band != "A")
            if brightest < _BLACK:
                raise ValueError(
                    f"its brightest level is below {_BLACK / 256:.0%} of what {self.bits} bits can say, so it would be "
                    "black: stretch its levels, or save it with 8 bits"
                )
        return found

    def _grey(self, picture: Image.Image) -> Image.Image:
        levels = np.asarray(picture).astype(np.uint16)
        upper = (levels >> (self.bits - _BYTE)).clip(max=255).astype(np.uint8)
        grey = Image.fromarray(255 - upper if self.white_is_zero else upper)
        transparent = picture.info.get("transparency")
        if not isinstance(transparent, int):
            return grey
        return Image.merge("LA", (grey, Image.fromarray(np.where(levels == transparent, 0, 255).astype(np.uint8))))


def depth_of(opened: Image.Image) -> Depth:
    """Of a picture whose header was read, and no more.

    Raises ValueError where nothing says which of its numbers are black and white.
    """
    if opened.mode not in EIGHT_BITS | _GREY_LEVELS:
        what = "fractions" if opened.mode.startswith("F") else "numbers of 32 bits, or with a sign"
        raise ValueError(
            f"its pixels are {what} (mode {opened.mode}), and nothing says which are black and white: save it with 8 or 16 "
            "bits a channel"
        )
    if isinstance(opened, TiffImageFile):
        bits = max(opened.tag_v2.get(BITSPERSAMPLE, (_BYTE,)))
        inverted = opened.mode in _GREY_LEVELS and opened.tag_v2.get(PHOTOMETRIC_INTERPRETATION) == _WHITE_IS_ZERO
        return Depth(int(bits), inverted)
    raw = str(opened.tile[0].args) if isinstance(opened, PngImageFile) and opened.tile else ""
    return Depth(_SIXTEEN if opened.mode in _GREY_LEVELS or ";16" in raw else _BYTE)


def _with_transparent_colour(picture: Image.Image) -> Image.Image:
    """The same, with a transparent colour in as many bits as its pixels have now: a PNG says it in those of the file."""
    colour = picture.info.get("transparency")
    if picture.mode == "RGB" and isinstance(colour, tuple) and max(colour) > 255:
        picture.info["transparency"] = tuple(value >> _BYTE for value in colour)
    return picture
