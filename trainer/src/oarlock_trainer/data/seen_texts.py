"""Texts of which each is encoded beside a reference (family.Sight): of every caption of every row, and of none.

Of a table with C captions and n rows, text `c` is caption c beside its row's reference, in the order of Table.text_keys,
and `C + row` the empty caption beside that of the row: where captions are left out while training. Where a data set is
flipped, as many follow of the same references mirrored. Each has a key of its own in the cache, made of the caption's and
the reference's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from xxhash import xxh3_128_digest

from oarlock_api.dataset import Role
from oarlock_trainer.data.entries import PAIR, mirrored_keys, picture_at
from oarlock_trainer.models.families import sight_of

if TYPE_CHECKING:
    from oarlock_api.training import Training
    from oarlock_trainer.data.metadata.table import Picture, Table

_SEEN = b"seen\0"


class SeenText(NamedTuple):
    """A text to encode: its row, its key, its caption, and the reference as a picture that is `paired`."""

    row: int
    key: bytes
    caption: str
    reference: Picture


class SeenTexts:
    """The texts of a table."""

    def __init__(self, table: Table, training: Training) -> None:
        """Of a job whose model has `sight`: each data set of it has references."""
        self._table = table
        counts = table.caption_counts()
        self._firsts = np.cumsum(counts) - counts
        self._captions, self._rows = int(counts.sum()), len(table)
        self._half = self._captions + self._rows
        self._row_of = np.concatenate([np.repeat(np.arange(self._rows), counts), np.arange(self._rows)])
        trained = np.array([one.role is not Role.EVALUATION for one in training.data.datasets])
        self._flipped = np.array([one.random_flip for one in training.data.datasets])
        self._leaves_out = trained & (training.objective.caption_dropout > 0)

    def __len__(self) -> int:
        return self._half * (2 if self._flipped.any() else 1)

    @property
    def rows(self) -> np.ndarray:
        """(texts,) int64: the row of each."""
        return np.tile(self._row_of, len(self) // self._half) if self._half else self._row_of

    def keys(self, empty: bytes) -> np.ndarray:
        """(texts, 2) uint64; `empty` is the key of the empty caption alone."""
        nothing = np.frombuffer(empty, dtype="<u8").reshape(1, 2)
        texts = np.concatenate([self._table.text_keys(), np.repeat(nothing, self._rows, axis=0)])
        pairs = self._table.pair_keys()
        either = [pairs, mirrored_keys(pairs)] if self._flipped.any() else [pairs]
        each = [
            _key(text.tobytes(), reference.tobytes())
            for references in either
            for text, reference in zip(texts, references[self._row_of], strict=True)
        ]
        return np.frombuffer(b"".join(each), dtype="<u8").reshape(-1, 2)

    def wanted(self) -> np.ndarray:
        """(texts,) bool: which are asked for in training."""
        rows = self.rows
        of_none = np.arange(len(rows)) % max(self._half, 1) >= self._captions
        is_mirrored = np.arange(len(rows)) >= self._half
        datasets = self._table.datasets()[rows]
        flipped, left_out = self._flipped[datasets], self._leaves_out[datasets]
        return np.asarray(self._table.kept[rows] & (~of_none | left_out) & (~is_mirrored | flipped))

    def place(self, row: int, caption: int | None, *, mirrored: bool) -> int:
        """Of a row's caption, by its number in the row, or of none; `mirrored` as the reference is shown."""
        own = self._captions + row if caption is None else int(self._firsts[row]) + caption
        return own + self._half * mirrored

    def at(self, place: int, empty: bytes) -> SeenText:
        """One of them."""
        half, own = divmod(place, self._half)
        row = int(self._row_of[own])
        reference = picture_at(self._table, (PAIR + half) * self._rows + row)
        if own >= self._captions:
            return SeenText(row, _key(empty, reference.image_key), "", reference)
        number = own - int(self._firsts[row])
        return SeenText(
            row, _key(reference.text_keys[number], reference.image_key), reference.captions[number], reference
        )


def seen_texts(table: Table, training: Training) -> SeenTexts | None:
    """None where texts are encoded by themselves."""
    return SeenTexts(table, training) if sight_of(training.model) else None


def _key(text: bytes, reference: bytes) -> bytes:
    return xxh3_128_digest(_SEEN + text + reference)
