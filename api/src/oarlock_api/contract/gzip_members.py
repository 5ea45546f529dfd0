"""Logs as gzip members, one behind the other: each append is whole in itself, so a crash costs the last one at most.

`zcat` reads them. The writer does without zlib, too: not every Python of an image has it, and the members are then merely
not compressed.
"""

from __future__ import annotations

import binascii
import struct
from collections.abc import Iterator
from pathlib import Path

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
_CHUNK = 1 << 20


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


def read_members(path: Path) -> Iterator[bytes]:
    """The content of a log in pieces, in order; what a crash has torn is left out. Needs zlib. Raises OSError."""
    written = path.read_bytes()
    at = 0
    while (at := written.find(_MAGIC, at)) >= 0:
        found = _whole_member(written, at)
        if found is None:  # torn here, and perhaps appended to later: the next one begins somewhere behind
            at += len(_MAGIC)
        else:
            content, at = found
            yield content


def _whole_member(written: bytes, at: int) -> tuple[bytes, int] | None:
    """(content, where the next one begins), or None where no whole member begins here."""
    reader, end, content = zlib.decompressobj(_GZIP_WINDOW), at, []
    try:
        while not reader.eof:
            chunk = written[end : end + _CHUNK]
            if not chunk:
                return None
            content.append(reader.decompress(chunk))
            end += len(chunk)
    except zlib.error:
        return None
    return b"".join(content), end - len(reader.unused_data)
