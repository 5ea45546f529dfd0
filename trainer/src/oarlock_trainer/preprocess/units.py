"""Cutting the work of encoding into units: one unit becomes one shard, made by one rank.

Units follow from the table alone: consecutive rows of one bucket of one data set, or consecutive distinct captions. What
is stored already is left out of its unit, it moves no border. So after a kill the units that were published have nothing
left in them, and the others are made again as they would have been made before: the same records, the same shards, for
any number of ranks. A key that several rows share is encoded for the first of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from oarlock_trainer.data.buckets import size_of
from oarlock_trainer.data.entries import PAIR, entry_keys
from oarlock_trainer.data.matching import firsts
from oarlock_trainer.data.shards import SHARD_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from oarlock_trainer.data.metadata.table import Table
    from oarlock_trainer.models.encoded import Encoded
    from oarlock_trainer.models.family import Grid

WORK = np.dtype([("row", "<i8"), ("caption", "<u4"), ("unit", "<u4")])
"""One embedding to make: a row of the table (EMPTY = the empty caption), the number of the caption in it, its unit.

Of latents the row is an entry as in data.entries.
"""

EMPTY = -1

_UNITS = 512
"""A small data set is cut into so many units rather than into full shards, so that every rank gets its share."""
_STEP = 16
"""The number of records in a unit is a multiple of this, so that the batches of the encoders are full."""
_LONG_CAPTION = 4
"""What is not padded is a quarter of a padded sequence, or less."""


def latent_work(
    table: Table,
    encoded: Encoded,
    *,
    grid: Grid,
    missing: np.ndarray,
    wanted: np.ndarray,
    pairs: Sequence[int] = (),
) -> np.ndarray:
    """WORK for `missing` latents among all that are `wanted` beforehand, both (entries,) bool as in data.entries.

    Units are numbered from the largest to the smallest. What is mirrored has units of its own, and so have pairs, whose
    channels `pairs` says of each data set.
    """
    entries = np.flatnonzero(wanted)
    quarter, rows = np.divmod(entries, max(len(table), 1))
    known, size = np.unique(table.sizes()[rows], return_inverse=True)
    datasets = table.datasets()[rows].astype(np.uint64) | quarter.astype(np.uint64) << np.uint64(14)
    buckets = datasets << np.uint64(48) | size.astype(np.uint64)
    _, one_of, bucket, counts = np.unique(buckets, return_index=True, return_inverse=True, return_counts=True)
    targets = [size_of(int(code)) for code in known[size[one_of]]]
    channels = np.array([encoded.channels * grid.latent_frames(one.frames) for one in targets], dtype=np.int64)
    is_pair = quarter[one_of] >= PAIR
    if is_pair.any():
        channels[is_pair] = np.asarray(pairs)[table.datasets()[rows[one_of[is_pair]]]]
    width = np.array([one.width for one in targets], dtype=np.int64)
    height = np.array([one.height for one in targets], dtype=np.int64)
    each = encoded.bytes_of(channels, width, height)
    length = _in_steps(min(SHARD_BYTES, int((each * counts).sum()) // _UNITS) // each)
    units = -(-counts // length)
    order = np.argsort(bucket, kind="stable")
    entries, bucket = entries[order], bucket[order]
    place = np.arange(len(entries)) - (np.cumsum(counts) - counts)[bucket]
    unit = (np.cumsum(units) - units)[bucket] + place // length[bucket]
    absent = missing[entries]
    entries, unit, sizes = entries[absent], unit[absent], each[bucket[absent]]
    first = _firsts_in_table(entry_keys(table, len(wanted)), entries)
    return _by_size(entries[first], np.zeros(int(first.sum()), dtype=np.uint32), unit[first], sizes[first])


def text_work(table: Table, encoded: Encoded, *, missing: np.ndarray, unpadded: bool) -> np.ndarray:
    """WORK for captions without embeddings: `missing` is (captions + 1,) bool, the last one is the empty caption's."""
    counts = table.caption_counts()
    captions = np.flatnonzero(np.repeat(table.kept, counts))
    captions = captions[firsts(table.text_keys()[captions])]
    most = SHARD_BYTES // (encoded.sequence // _LONG_CAPTION if unpadded else encoded.sequence)
    unit = np.arange(len(captions)) // min(int(_in_steps(len(captions) // _UNITS)), most)
    wanted = missing[captions]
    captions, unit = captions[wanted], unit[wanted]
    ends = np.cumsum(counts)
    rows = np.searchsorted(ends, captions, side="right")
    places = captions - (ends - counts)[rows]
    if missing[-1]:
        rows, places = np.append(rows, EMPTY), np.append(places, 0)
        unit = np.append(unit, unit[-1] if len(unit) else 0)
    return _by_size(rows, places, unit, np.ones(len(rows), dtype=np.int64))


def seen_text_work(keys: np.ndarray, encoded: Encoded, *, missing: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """WORK for texts that are encoded beside references, whose places stand for rows: as in data.seen_texts.

    `missing` among all that are `wanted`, both (texts,) bool. What is seen makes each nearly as long as any other.
    """
    texts = np.flatnonzero(wanted)
    texts = texts[firsts(keys[texts])]
    most = max(SHARD_BYTES // encoded.sequence // _STEP, 1) * _STEP
    unit = np.arange(len(texts)) // min(int(_in_steps(len(texts) // _UNITS)), most)
    absent = missing[texts]
    texts, unit = texts[absent], unit[absent]
    return _by_size(texts, np.zeros(len(texts), dtype=np.uint32), unit, np.ones(len(texts), dtype=np.int64))


def share(work: np.ndarray, *, rank: int, world_size: int) -> Iterator[np.ndarray]:
    """The units of one rank, each as a part of `work`.

    They are dealt out from the largest to the smallest, so that ranks end at about the same time.
    """
    borders = np.flatnonzero(np.diff(work["unit"].astype(np.int64), prepend=-1, append=-1))
    for number in range(rank, len(borders) - 1, world_size):
        yield work[borders[number] : borders[number + 1]]


def _in_steps(count: np.ndarray | int) -> np.ndarray:
    return np.asarray(np.maximum(-(-np.asarray(count) // _STEP), 1) * _STEP)


def _firsts_in_table(keys: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Which of `rows`, in whatever order, is the first of the table with its key."""
    ascending = np.argsort(rows)
    first = np.empty(len(rows), dtype=bool)
    first[ascending] = firsts(keys[rows[ascending]])
    return first


def _by_size(rows: np.ndarray, captions: np.ndarray, units: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """WORK in the order of units, the largest first; within a unit the order stays."""
    present, place = np.unique(units, return_inverse=True)
    weight = np.bincount(place, weights=sizes, minlength=len(present))
    number = np.empty(len(present), dtype=np.int64)
    number[np.argsort(-weight, kind="stable")] = np.arange(len(present))
    order = np.argsort(number[place], kind="stable")
    work = np.empty(len(rows), dtype=WORK)
    work["row"], work["caption"], work["unit"] = rows[order], captions[order], number[place][order]
    return work
