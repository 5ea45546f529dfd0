"""Weights of which each rank has only a share: ZeRO stage 3 leaves a rank with a part of every tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def is_sharded(weight: Tensor) -> bool:
    """Whether this rank has only a share of it."""
    return hasattr(weight, "ds_id")


def elements(weight: Tensor) -> int:
    """Of the whole tensor, also where this rank has only a share of it."""
    return int(getattr(weight, "ds_numel", weight.numel()))


def dimensions(weight: Tensor) -> int:
    """Of the whole tensor, also where this rank has only a share of it."""
    return len(getattr(weight, "ds_shape", weight.shape))
