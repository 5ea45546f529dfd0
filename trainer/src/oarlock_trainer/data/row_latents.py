"""Latents of rows and their pairs: read from the cache, or made now where a data set's are not made before training."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import torch

from oarlock_api.dataset import ConditioningKind, EmbedMode
from oarlock_trainer.data.entries import PAIR, picture_at

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Executor

    from oarlock_api.training import Training
    from oarlock_trainer.data.metadata.table import Picture
    from oarlock_trainer.data.prepared import Prepared

Record = tuple[np.ndarray, tuple[int, int, int]]
"""The bits of bfloat16 values as flat uint16, and what their shape means to the user."""


class Encoding(Protocol):
    """Makes the latents of pictures that have none in the cache."""

    def encode(self, pictures: Sequence[Picture]) -> Sequence[Record | None]:
        """Of pictures of one size, or of their pairs, in order; None of one that cannot be used, which is told."""
        ...

    def close(self) -> None:
        """Publish what is to be kept."""
        ...


class Shown(NamedTuple):
    """A picture as it is trained, bfloat16: latents (C, h, w); its mask (1, h, w), or its reference (R, h, w)."""

    latents: torch.Tensor
    mask: torch.Tensor | None = None
    reference: torch.Tensor | None = None


_FIELDS = {ConditioningKind.MASK: "mask", ConditioningKind.REFERENCE: "reference"}


class RowLatents:
    """What is stored of rows. `moved`: when something was last made, on the monotonic clock."""

    def __init__(self, prepared: Prepared, training: Training, encoding: Encoding, pool: Executor) -> None:
        """`pool` reads."""
        self._table, self._places = prepared.table, prepared.latents
        self._datasets = training.data.datasets
        self._encoding, self._pool = encoding, pool
        self._unusable: set[int] = set()
        self.moved = 0.0

    def of(self, dataset: int, rows: np.ndarray, mirrored: np.ndarray) -> list[Shown | None]:
        """Rows of one data set and size; `mirrored` (n,) bool says which way each is shown.

        None of a picture that cannot be used, or whose pair cannot; it is tried once.
        """
        entries = rows + mirrored * np.int64(len(self._table))
        latents = self._read(dataset, entries.tolist())
        conditioning = self._datasets[dataset].conditioning
        if conditioning is None:
            return [None if one is None else Shown(one) for one in latents]
        pairs = self._read(dataset, (entries + PAIR * len(self._table)).tolist())
        field = _FIELDS[conditioning.kind]
        return [
            None if one is None or pair is None else Shown(one, **{field: pair})
            for one, pair in zip(latents, pairs, strict=True)
        ]

    def _read(self, dataset: int, entries: Sequence[int]) -> list[torch.Tensor | None]:
        """Of entries as in data.entries, all of the pictures or all of their pairs."""
        live = self._datasets[dataset].image_embeds.mode is EmbedMode.ON_THE_FLY
        made: dict[int, Record | None] = {entry: None for entry in entries if entry in self._unusable}
        absent = [one for one in dict.fromkeys(entries) if one not in made and (live or not self._places.has(one))]
        if absent:
            pictures = [picture_at(self._table, entry) for entry in absent]
            encoded = dict(zip(absent, self._encoding.encode(pictures), strict=True))
            self._unusable.update(entry for entry, record in encoded.items() if record is None)
            made |= encoded
            self.moved = time.monotonic()
        read = self._pool.map(lambda entry: made[entry] if entry in made else self._places.read(entry), entries)
        return [None if record is None else bfloat16(record[0]).reshape(record[1]) for record in read]


def bfloat16(values: np.ndarray) -> torch.Tensor:
    """A tensor of the same bits, flat uint16."""
    return torch.from_numpy(values.astype(np.int16, copy=True)).view(torch.bfloat16)
