"""Latents as tokens: each is a patch of 2 x 2."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.nn import functional

if TYPE_CHECKING:
    from torch import Tensor

_PATCH = 2


def pack(latents: Tensor) -> Tensor:
    """(B, C, h, w) -> (B, 4 C, h/2, w/2): all numbers of a token, in diffusers' order, and where it stands."""
    return functional.pixel_unshuffle(latents, _PATCH)


def unpack(tokens: Tensor) -> Tensor:
    """(B, 4 C, h/2, w/2) -> (B, C, h, w): the inverse of `pack`."""
    return functional.pixel_shuffle(tokens, _PATCH)
