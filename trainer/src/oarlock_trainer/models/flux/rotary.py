"""Rotary positions of text and image tokens: tables kept for ids that were seen before.

The angles are diffusers' own (computed in float64, kept in float32). diffusers computes them in each forward pass; here
they are computed once for each pair of id tensors, which are told apart by identity: whoever passes the same tensors
again gets the same table, without a look at their values, which would wait for the GPU.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class _CachedTable:
    text_ids: weakref.ref[Tensor]
    image_ids: weakref.ref[Tensor]
    table: Tensor


@dataclass(frozen=True, slots=True)
class RotaryTables:
    """Tables of one model. Ids that nobody holds any more take their table with them; ids must not be written to."""

    embedding: nn.Module
    """The model's pos_embed."""
    _kept: dict[tuple[int, int], _CachedTable] = field(default_factory=dict)

    def of(self, text_ids: Tensor, image_ids: Tensor) -> Tensor:
        """(T + N, D/2, 2) float32 on the ids' device: cos and sin. text_ids (T, 3), image_ids (N, 3)."""
        key = id(text_ids), id(image_ids)
        found = self._kept.get(key)
        if found and found.text_ids() is text_ids and found.image_ids() is image_ids:
            return found.table
        for old in [old for old, kept in self._kept.items() if kept.text_ids() is None or kept.image_ids() is None]:
            del self._kept[old]
        with torch.no_grad():
            cos, sin = self.embedding(torch.cat([text_ids, image_ids]))
            table = torch.stack([cos[:, ::2], sin[:, ::2]], dim=-1)  # diffusers has each angle twice
        self._kept[key] = _CachedTable(weakref.ref(text_ids), weakref.ref(image_ids), table)
        return table
