"""Weights whose result nobody asks: their gradients are zeros, and not missing.

The last block of some transformers makes something of the text's tokens too, which goes nowhere. DDP waits for a gradient of
each parameter that is trained, and refuses the next step where one does not come.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def beside(asked: Tensor, unasked: Tensor) -> Tensor:
    """`asked` itself; in the backward pass `unasked`, of any shape, gets zeros. Nothing is kept for it."""
    result: Tensor = _Beside.apply(asked, unasked)  # type: ignore[no-untyped-call]
    return result


class _Beside(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, asked: Tensor, unasked: Tensor) -> Tensor:
        ctx.shape, ctx.kind = unasked.shape, {"dtype": unasked.dtype, "device": unasked.device}
        return asked.view_as(asked)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        return gradients[0], torch.zeros(ctx.shape, **ctx.kind)
