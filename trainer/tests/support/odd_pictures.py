"""Pictures as strangers have them: each kind shows the same grey levels, stored in another way."""

from __future__ import annotations

import io
import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

if TYPE_CHECKING:
    from collections.abc import Callable

SIDE = 64
GREY, RGB, GREY_ALPHA, RGB_ALPHA = 0, 2, 4, 6
"""Colour types of PNG."""


@dataclass(frozen=True, slots=True)
class Odd:
    """`stored` makes a file of (64, 64) uint8 grey levels; `far`: how far what is shown may be from them.

    `clear`: its right half is transparent. `read` False: nothing says which of its numbers are black and white. `deep`: it is
    known to have more than 8 bits.
    """

    stored: Callable[[np.ndarray], bytes]
    far: int = 0
    clear: bool = False
    read: bool = True
    deep: bool = False


def png(pixels: np.ndarray, colour: int, *, transparent: tuple[int, ...] = ()) -> bytes:
    """A PNG of (H, W) or (H, W, C) uint8 or uint16, as another program than Pillow would write it."""
    height, width = pixels.shape[:2]
    big = pixels.astype(pixels.dtype.newbyteorder(">")).reshape(height, -1)
    lines = b"".join(b"\0" + line.tobytes() for line in big)
    head = struct.pack(">IIBBBBB", width, height, 8 * pixels.itemsize, colour, 0, 0, 0)
    clear = _chunk(b"tRNS", struct.pack(f">{len(transparent)}H", *transparent)) if transparent else b""
    return (
        b"\x89PNG\r\n\x1a\n"
        + _chunk(b"IHDR", head)
        + clear
        + _chunk(b"IDAT", zlib.compress(lines))
        + _chunk(b"IEND", b"")
    )


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def saved(picture: Image.Image, kind: str, **options: Any) -> bytes:
    content = io.BytesIO()
    picture.save(content, kind, **options)
    return content.getvalue()


def upper(levels: np.ndarray) -> np.ndarray:
    """(H, W) uint16 whose upper bytes are the levels; the lower ones are noise."""
    noise = np.random.default_rng(0).integers(0, 256, levels.shape, dtype=np.uint16)
    return (levels.astype(np.uint16) << 8) | noise


def half_clear(levels: np.ndarray) -> np.ndarray:
    """(H, W) uint8: alpha of a picture whose right half is transparent."""
    alpha = np.full(levels.shape, 255, dtype=np.uint8)
    alpha[:, levels.shape[1] // 2 :] = 0
    return alpha


def _marked(levels: np.ndarray, mark: int, dtype: type) -> np.ndarray:
    """Grey levels of which those of the right half, and no others, are `mark`, which a file calls transparent."""
    found = np.where(levels == mark, mark ^ 1, levels).astype(dtype)
    found[:, levels.shape[1] // 2 :] = mark
    return found


def _layers(*planes: np.ndarray) -> np.ndarray:
    return np.dstack(planes)


def tiff(pixels: bytes, *, bits: int, white_is_zero: bool = False) -> bytes:
    """A TIFF of SIDE x SIDE grey levels of so many bits, as another program than Pillow would write it."""
    tags = [(256, SIDE), (257, SIDE), (258, bits), (259, 1), (262, int(not white_is_zero)), (273, 8), (278, SIDE)]
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in [*tags, (279, len(pixels))])
    return b"II*\0" + struct.pack("<I", 8 + len(pixels)) + pixels + struct.pack("<H", 8) + entries + bytes(4)


def _twelve_bits(levels: np.ndarray) -> bytes:
    """Two levels in three bytes."""
    first, second = (levels.astype(np.uint16) << 4 | 7).reshape(-1, 2).T
    return np.stack([first >> 4, (first & 15) << 4 | second >> 8, second & 255], axis=1).astype(np.uint8).tobytes()


ODD: dict[str, Odd] = {
    "grey": Odd(lambda levels: png(levels, GREY)),
    "grey of 16 bits": Odd(lambda levels: png(upper(levels), GREY), deep=True),
    "grey of 16 bits with a clear level": Odd(
        lambda levels: png(_marked(upper(levels), 0x1234, np.uint16), GREY, transparent=(0x1234,)),
        clear=True,
        deep=True,
    ),
    "grey with a clear level": Odd(
        lambda levels: png(_marked(levels, 77, np.uint8), GREY, transparent=(77,)), far=1, clear=True
    ),
    "grey with alpha of 16 bits": Odd(
        lambda levels: png(_layers(upper(levels), half_clear(levels) * np.uint16(257)), GREY_ALPHA),
        clear=True,
        deep=True,
    ),
    "colour of 16 bits": Odd(lambda levels: png(_layers(*[upper(levels)] * 3), RGB), deep=True),
    "colour of 16 bits with alpha": Odd(
        lambda levels: png(_layers(*[upper(levels)] * 3, half_clear(levels) * np.uint16(257)), RGB_ALPHA),
        clear=True,
        deep=True,
    ),
    "colour with a clear one": Odd(
        lambda levels: png(_layers(*[_marked(levels, 77, np.uint8)] * 3), RGB, transparent=(77, 77, 77)),
        far=1,
        clear=True,
    ),
    "palette with clear entries": Odd(
        lambda levels: saved(
            Image.merge("RGBA", [*[Image.fromarray(levels)] * 3, Image.fromarray(half_clear(levels))]).quantize(256),
            "PNG",
        ),
        far=16,
        clear=True,
    ),
    "TIFF of 16 bits": Odd(lambda levels: saved(Image.fromarray(upper(levels)), "TIFF"), deep=True),
    "TIFF of 16 bits, the upper one first": Odd(
        lambda levels: saved(Image.fromarray(upper(levels).astype(">u2")), "TIFF"), deep=True
    ),
    "TIFF of 16 bits of which 0 is white": Odd(
        lambda levels: tiff((~upper(levels)).tobytes(), bits=16, white_is_zero=True), deep=True
    ),
    "TIFF of 12 bits": Odd(lambda levels: tiff(_twelve_bits(levels), bits=12), deep=True),
    "JPEG 2000 of 16 bits": Odd(lambda levels: saved(Image.fromarray(upper(levels)), "JPEG2000"), deep=True),
    "CMYK": Odd(lambda levels: saved(Image.fromarray(levels).convert("RGB").convert("CMYK"), "TIFF"), far=1),
    "YCbCr": Odd(
        lambda levels: saved(Image.fromarray(levels).convert("RGB").convert("YCbCr"), "JPEG", quality=95), far=9
    ),
    "LAB": Odd(lambda levels: saved(Image.fromarray(levels).convert("RGB").convert("LAB"), "TIFF"), far=9),
    "AVIF": Odd(lambda levels: saved(Image.fromarray(levels).convert("RGB"), "AVIF", quality=95, speed=10), far=16),
    "fractions": Odd(lambda levels: saved(Image.fromarray((levels / 255).astype(np.float32)), "TIFF"), read=False),
    "fractions as large as bytes": Odd(
        lambda levels: saved(Image.fromarray(levels.astype(np.float32)), "TIFF"), read=False
    ),
    "32 bits": Odd(lambda levels: saved(Image.fromarray(levels.astype(np.int32) << 20), "TIFF"), read=False),
    "16 bits in a PGM": Odd(
        lambda levels: b"P5 64 64 65535\n" + upper(levels).astype(">u2").tobytes(),
        read=False,
    ),
}
