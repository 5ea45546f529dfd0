"""What is stored of each row: the latents of its picture, both ways where it is flipped, and what its pair became.

Of a table with n rows, entry `row` is that row's picture, `n + row` the same one mirrored, `2 n + row` its pair (a mask),
`3 n + row` the pair mirrored. The second quarter is there only where a data set keeps mirrored latents, the last two only
where one keeps pairs. Each has a key of its own in the cache; that of what is mirrored follows from the other's.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np
from xxhash import xxh3_128_digest

from oarlock_api.dataset import EmbedMode
from oarlock_trainer.data.metadata.table import KEY_BYTES
from oarlock_trainer.data.pair_sizes import reference_in
from oarlock_trainer.models.family import Reference

if TYPE_CHECKING:
    from oarlock_api.dataset import Dataset
    from oarlock_api.training import Training
    from oarlock_api.weights import Model
    from oarlock_trainer.data.metadata.table import Picture, Table

PAIR = 2
"""Number of the first quarter of pairs."""
_MIRRORED = b"mirrored\0"


def keeps_mirrored(training: Training) -> np.ndarray:
    """(data sets,) bool: whose mirrored latents are stored."""
    datasets = training.data.datasets
    return np.array([one.random_flip and one.image_embeds.mode is not EmbedMode.ON_THE_FLY for one in datasets])


def keeps_pairs(training: Training) -> np.ndarray:
    """(data sets,) bool: whose pairs are stored."""
    datasets = training.data.datasets
    return np.array(
        [one.conditioning is not None and one.image_embeds.mode is not EmbedMode.ON_THE_FLY for one in datasets]
    )


def quarters(training: Training) -> int:
    """How many of the four an index of the job's table has."""
    return 4 if keeps_pairs(training).any() else 2 if keeps_mirrored(training).any() else 1


def entries_of(rows: np.ndarray, table: Table, training: Training) -> np.ndarray:
    """(rows,) bool -> (entries,) bool: all that is stored of these rows."""
    kept = quarters(training)
    if kept == 1:
        return rows
    datasets = table.datasets()
    mirrored, paired = keeps_mirrored(training)[datasets], keeps_pairs(training)[datasets]
    each = [rows, rows & mirrored, rows & paired, rows & paired & mirrored]
    return np.concatenate(each[:kept])


def entry_keys(table: Table, count: int) -> np.ndarray:
    """(count, 2) uint64: the keys of all entries, of which there are 1, 2 or 4 times as many as rows."""
    own = table.image_keys()
    if count == len(own):
        return own
    both = [own, mirrored_keys(own)]
    if count == 2 * len(own):
        return np.concatenate(both)
    pairs = table.pair_keys()
    return np.concatenate([*both, pairs, mirrored_keys(pairs)])


def picture_at(table: Table, entry: int) -> Picture:
    """The picture of an entry, or its pair."""
    quarter, row = divmod(entry, len(table))
    picture = table.picture(row)
    if quarter >= PAIR:
        picture = replace(picture, paired=True, image_key=picture.pair_key)
    return replace(picture, mirrored=True, image_key=_mirrored_key(picture.image_key)) if quarter % 2 else picture


class Pair(StrEnum):
    """What is made of a second picture."""

    MASK = "mask"
    REFERENCE = "reference"
    HOLES = "holes"
    """A reference with its holes: see models.family.Reference."""

    @property
    def word(self) -> str:
        """What people call the second picture."""
        return "mask" if self is Pair.MASK else "reference"


def pair_of(picture: Picture, dataset: Dataset, model: Model) -> Pair | None:
    """What kind of pair is meant; None where it is the picture itself."""
    if not picture.paired:
        return None
    reference = reference_in(dataset, model)
    if reference is None:
        return Pair.MASK
    return Pair.HOLES if reference is Reference.HOLES else Pair.REFERENCE


def mirrored_keys(keys: np.ndarray) -> np.ndarray:
    """(n, 2) uint64 -> those of the same, mirrored."""
    content = keys.tobytes()
    each = (_mirrored_key(content[start : start + KEY_BYTES]) for start in range(0, len(content), KEY_BYTES))
    return np.frombuffer(b"".join(each), dtype="<u8").reshape(-1, 2)


def _mirrored_key(key: bytes) -> bytes:
    return xxh3_128_digest(_MIRRORED + key)
