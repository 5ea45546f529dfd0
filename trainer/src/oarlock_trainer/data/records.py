"""One cached embedding as bytes: bfloat16 values, compressed or not, with a checksum of what is stored.

Every record says in the index how it is compressed, so all of them can be read whatever a job asks for now. Before
compression the two bytes of each value are parted, all low ones first: mantissas are noise and stay as they are, signs
and exponents then shrink to half. That makes 0.68 instead of 0.78 of a latent, and costs Zstd no time.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import pyarrow as pa

from oarlock_api.data import Compression


class Coding(IntEnum):
    """How a record's bytes are stored. The numbers stand in indices."""

    PLAIN = 0
    GZIP = 1
    ZSTD = 2


_CODINGS = {Compression.NONE: Coding.PLAIN, Compression.GZIP: Coding.GZIP, Compression.ZSTD: Coding.ZSTD}


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One embedding, ready to be stored. `key` has 16 bytes, `size` counts the bytes before compression."""

    key: bytes
    data: bytes
    size: int
    checksum: int
    shape: tuple[int, int, int]
    coding: Coding


def pack(key: bytes, values: np.ndarray, shape: tuple[int, int, int], compression: Compression) -> Record:
    """Make a record of values: uint16 (the bits of bfloat16), any array; `shape` is what its user makes of it."""
    flat = np.ascontiguousarray(values, dtype="<u2").reshape(-1)
    coding = _CODINGS[compression]
    if coding is Coding.PLAIN:
        data = flat.tobytes()
    else:
        parted = np.ascontiguousarray(flat.view(np.uint8).reshape(-1, 2).T)
        data = _codec(coding).compress(parted, asbytes=True)
    return Record(key=key, data=data, size=flat.nbytes, checksum=checksum(data), shape=shape, coding=coding)


def unpack(data: bytes, *, size: int, coding: Coding) -> np.ndarray:
    """The values of a record whose checksum is right: flat uint16, `size` bytes. Not to be written into."""
    if coding is Coding.PLAIN:
        return np.frombuffer(data, dtype="<u2")
    parted = np.frombuffer(_codec(coding).decompress(data, size), dtype=np.uint8).reshape(2, -1)
    return np.ascontiguousarray(parted.T).reshape(-1).view("<u2")


def checksum(data: bytes) -> int:
    """CRC-32 of stored bytes."""
    return zlib.crc32(data)


def _codec(coding: Coding) -> pa.Codec:
    """A codec of its own for each call: threads that share one of Gzip's crash.

    The fastest level, because what is left after the parting is noise, on which higher ones only spend time.
    """
    return pa.Codec(coding.name.lower(), compression_level=1)
