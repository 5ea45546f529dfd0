"""Logs as gzip members, one behind the other: each append is whole in itself, so a crash costs the last one at most.

`zcat` reads them. The writer does without zlib, too: not every Python of an image has it, and the members are then merely
not compressed.
"""

from __future__ import annotations

import binascii
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from oarlock_api.contract.beneath import Beneath
from oarlock_api.contract.regular_file import open_regular

try:
    import zlib
except ImportError:  # pragma: no cover - a Python that was built without it
    zlib = None  # type: ignore[assignment]

_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
"""gzip, deflate, no name, no time, unknown system (RFC 1952): the same text is the same member."""
_MAGIC = _HEADER[:3]
_STORED_BLOCK = 65535
_GZIP_WINDOW = 31
"""zlib's name for "the largest window, behind a gzip header"."""
_CHUNK = 1 << 18
MAX_MEMBER = 8 * 1024 * 1024
"""Bytes of a member that a reader takes, packed or not: writers hold back half of that at most, while the storage is away."""


def member(content: bytes, *, compress: bool = zlib is not None) -> bytes:
    """One gzip member."""
    body = _deflated(content) if compress else _stored(content)
    return _HEADER + body + struct.pack("<II", binascii.crc32(content), len(content) & 0xFFFFFFFF)


def _deflated(content: bytes) -> bytes:
    packer = zlib.compressobj(6, zlib.DEFLATED, -15)
    return packer.compress(content) + packer.flush()


def _stored(content: bytes) -> bytes:
    """Deflate's way to say "as it is" (RFC 1951, 3.2.4)."""
    blocks = [content[at : at + _STORED_BLOCK] for at in range(0, len(content), _STORED_BLOCK)] or [b""]
    last = len(blocks) - 1
    return b"".join(
        struct.pack("<BHH", number == last, len(block), len(block) ^ 0xFFFF) + block
        for number, block in enumerate(blocks)
    )


def read_members(path: Path | Beneath) -> Iterator[bytes]:
    """The content of a log in pieces, in order; what a crash has torn is left out. Needs zlib. Raises OSError."""
    return (content for content in read_pieces(path) if content is not None)


def read_pieces(path: Path | Beneath) -> Iterator[bytes | None]:
    """As read_members, with None where something is left out. Holds one member in memory, MAX_MEMBER bytes at most."""
    with open_regular(path) as (file, _):
        window, torn = bytearray(), False
        while True:
            at = window.find(_MAGIC)
            if at < 0:  # but it may begin in the last two bytes
                torn |= len(window) > len(_MAGIC) - 1
                del window[: 1 - len(_MAGIC)]
                chunk = file.read(_CHUNK)
                if not chunk:
                    break
                window += chunk
                continue
            torn |= at > 0
            del window[:at]
            found = _whole_member(window, file)
            if found is None:  # torn here, and perhaps appended to later: the next one begins somewhere behind
                torn = True
                del window[: len(_MAGIC)]
                continue
            if torn:
                yield None
            torn = False
            content, end = found
            del window[:end]
            yield content
        if torn or window:
            yield None


def _whole_member(window: bytearray, file: BinaryIO) -> tuple[bytes, int] | None:
    """(content, where it ends in the window), or None where no whole member begins there. Reads on into the window."""
    reader, content, size = zlib.decompressobj(_GZIP_WINDOW), [], 0
    fed = bytes(window)
    try:
        while True:
            content.append(reader.decompress(fed, MAX_MEMBER - size))
            size += len(content[-1])
            if reader.eof:
                return b"".join(content), len(window) - len(reader.unused_data)
            if size >= MAX_MEMBER or len(window) >= MAX_MEMBER:
                return None
            fed = file.read(_CHUNK)
            if not fed:
                return None
            window += fed
    except zlib.error:
        return None
