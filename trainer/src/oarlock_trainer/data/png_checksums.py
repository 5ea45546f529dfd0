"""The checksums of a PNG's pixels, which Pillow does not compare: a damaged picture would be trained as what is left of it.

JPEG and WebP have none.
"""

from __future__ import annotations

import struct
import zlib

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_HEAD = struct.Struct(">I4s")
_CHECKSUM = struct.Struct(">I")


def check_pixels(content: bytes) -> None:
    """Raise ValueError where a checksum is wrong. Of what is no PNG nothing is said, nor of one that ends too early."""
    if not content.startswith(_SIGNATURE):
        return
    at, whole = len(_SIGNATURE), memoryview(content)
    while at + _HEAD.size <= len(content):
        length, kind = _HEAD.unpack_from(content, at)
        end = at + _HEAD.size + length
        if kind == b"IEND" or end + _CHECKSUM.size > len(content):
            return
        if kind == b"IDAT" and zlib.crc32(whole[at + 4 : end]) != _CHECKSUM.unpack_from(content, end)[0]:
            raise ValueError(f"damaged: the {length} bytes of its pixels from byte {at} on have another checksum")
        at = end + _CHECKSUM.size
