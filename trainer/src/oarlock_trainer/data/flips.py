"""Random horizontal flips: which samples show the mirrored picture, and where its latents are.

The latents of a mirrored picture are not the picture's latents mirrored, since the VAE treats left and right differently.
So both are encoded. What is mirrored has a key of its own, which follows from the picture's; the picture's stays as it is.

Latents are told apart by entries: entry `row` is that row's picture, entry `rows + row` the same one mirrored. The second
half is there only where a data set keeps mirrored latents.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from xxhash import xxh3_128_digest

from oarlock_api.dataset import EmbedMode
from oarlock_trainer.data.metadata.table import KEY_BYTES
from oarlock_trainer.runtime.draws import Purpose, generator

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oarlock_api.training import Training
    from oarlock_trainer.data.metadata.table import Picture, Table

_MIRRORED = b"mirrored\0"


def flips(seed: int, indices: Sequence[int]) -> np.ndarray:
    """(n,) bool: which samples, by their global index as in runtime.draws, show the mirrored picture: each with 1/2."""
    return np.array([generator(seed, Purpose.FLIP, index).random() < 0.5 for index in indices], dtype=bool)


def keeps_mirrored(training: Training) -> np.ndarray:
    """(data sets,) bool: whose mirrored latents are stored."""
    datasets = training.data.datasets
    return np.array([one.random_flip and one.image_embeds.mode is not EmbedMode.ON_THE_FLY for one in datasets])


def entries_of(rows: np.ndarray, table: Table, training: Training) -> np.ndarray:
    """(rows,) bool -> (entries,) bool: these rows' pictures, and the mirrored ones of data sets that keep them."""
    mirrored = keeps_mirrored(training)
    return np.concatenate([rows, rows & mirrored[table.datasets()]]) if mirrored.any() else rows


def entry_keys(table: Table, count: int) -> np.ndarray:
    """(count, 2) uint64: the keys of all entries, of which there are as many as rows, or twice as many."""
    own = table.image_keys()
    if count == len(own):
        return own
    content = own.tobytes()
    mirrored = b"".join(
        _mirrored_key(content[start : start + KEY_BYTES]) for start in range(0, len(content), KEY_BYTES)
    )
    return np.concatenate([own, np.frombuffer(mirrored, dtype="<u8").reshape(-1, 2)])


def picture_at(table: Table, entry: int) -> Picture:
    """The picture of an entry."""
    mirrored, row = divmod(entry, len(table))
    picture = table.picture(row)
    return replace(picture, mirrored=True, image_key=_mirrored_key(picture.image_key)) if mirrored else picture


def _mirrored_key(key: bytes) -> bytes:
    return xxh3_128_digest(_MIRRORED + key)
