"""What a row's embeddings are made from, as 128-bit keys: another input, another key.

A picture's content counts by its version, which a listing tells; of a picture that only a table names it is empty.

Keys are xxh3-128 of everything that decides about a record, many at a time: ten million take seconds. They protect
against change, not against somebody who looks for collisions.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from xxhash import xxh3_128_digest

from oarlock_trainer.data.metadata.table import KEY_BYTES

if TYPE_CHECKING:
    from oarlock_trainer.data.buckets import Cuts


def image_keys(
    names: pa.Array,
    versions: pa.Array,
    cuts: Cuts,
    *,
    source: str,
    encoder: str,
    frames: np.ndarray | None = None,
    fps: float = 0.0,
) -> pa.Array:
    """(n,) keys of latents. `source` is the place that the names are relative to (Files.where).

    Of videos `frames` (n,) are those of each sample, and `fps` how many of them are a second.
    """
    numbers, made_of = cuts.numbers(), ("latents", source, encoder)
    if frames is None:
        prefix = _prefix(*made_of)
    else:
        numbers, prefix = np.column_stack([numbers, frames]).astype("<u4"), _prefix(*made_of, float(fps))
    shapes = _fixed(numbers.tobytes(), len(names), numbers.shape[1] * numbers.itemsize).cast(pa.binary())
    parts = (prefix, shapes, versions.cast(pa.binary()), names.cast(pa.binary()))
    return _fixed(_digests(pc.binary_join_element_wise(*parts, b"\0")), len(names), KEY_BYTES)


def text_keys(captions: pa.Array, *, encoder: str, unpadded: bool) -> pa.Array:
    """(n,) keys of captions' embeddings. `unpadded`: they are stored without padding."""
    before = pa.scalar(f"text\0{encoder}\0{int(unpadded)}".encode(), pa.binary())
    content = pc.binary_join_element_wise(before, captions.cast(pa.binary()), b"\0")
    return _fixed(_digests(content), len(captions), KEY_BYTES)


def draws(names: pa.Array, *, seed: int, purpose: str) -> np.ndarray:
    """(n, 4) float64 in [0, 1) that belong to a name: what is cached with it must not depend on anything else."""
    return _drawn(names, seed, purpose).view("<u4") / 2.0**32


def lots(names: pa.Array, *, seed: int, purpose: str) -> np.ndarray:
    """(n,) uint64 that belong to a name: who draws the lowest ones is taken, whatever else there is."""
    return np.ascontiguousarray(_drawn(names, seed, purpose)[:, 0])


def digest(*facts: object) -> str:
    """32 hexadecimal digits that tell one set of JSON-like facts from another."""
    return xxh3_128_digest(json.dumps(facts, sort_keys=True).encode()).hex()


def _drawn(names: pa.Array, seed: int, purpose: str) -> np.ndarray:
    digests = _digests(pc.binary_join_element_wise(_prefix(purpose, seed), names.cast(pa.binary()), b"\0"))
    return np.frombuffer(digests, dtype="<u8").reshape(-1, 2)


def _prefix(*facts: object) -> pa.Scalar:
    return pa.scalar(bytes.fromhex(digest(*facts)), type=pa.binary())


def _digests(content: pa.Array) -> bytes:
    return b"".join(map(xxh3_128_digest, content.to_pylist()))


def _fixed(content: bytes, count: int, width: int) -> pa.Array:
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), count, [None, pa.py_buffer(content)])
