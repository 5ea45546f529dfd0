"""Rotary positions, as queries and keys get them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor


def rotate(heads: Tensor, table: Tensor) -> Tensor:
    """Rotate pairs of neighbouring channels. heads (B, S, H, D), table (S, D/2, 2) or (B, S, D/2, 2) float32: cos, sin.

    Multiplied in float32, as diffusers does, and rounded to the type of `heads` once: (B, S, H, D). torch has no complex
    bfloat16.
    """
    pairs = heads.float().view(*heads.shape[:-1], -1, 2)
    table = table[..., None, :, :]  # for all heads
    if torch.compiler.is_compiling():  # inductor fuses these, and knows no complex numbers
        even, odd = pairs.unbind(-1)
        cos, sin = table.unbind(-1)
        turned = torch.stack([even * cos - odd * sin, odd * cos + even * sin], dim=-1)
    else:  # one kernel instead of six
        turned = torch.view_as_real(torch.view_as_complex(pairs) * torch.view_as_complex(table))
    return turned.flatten(-2).to(heads.dtype)
