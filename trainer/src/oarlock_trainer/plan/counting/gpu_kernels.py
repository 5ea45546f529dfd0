"""The kernels that a GPU would take, on torch's meta device.

Without a GPU torch takes apart two operators that have a kernel of their own there: attention, which would then keep a
weight for each pair of tokens, and RMS norms, which would keep float32 copies of their input. Here they are the operator of
FlashAttention, which computes and counts on the meta device as well, and a function that keeps what the fused norm keeps.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor


@contextmanager
def gpu_kernels(*, norms: bool = True) -> Iterator[None]:
    """Within it this process calls them instead of torch's own. `norms`: not for what is compiled, which is fused anyway."""
    own = functional.scaled_dot_product_attention, functional.rms_norm
    functional.scaled_dot_product_attention = _flash  # type: ignore[assignment]
    if norms:
        functional.rms_norm = _fused
    try:
        yield
    finally:
        functional.scaled_dot_product_attention, functional.rms_norm = own


def _flash(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, **options: Any) -> Tensor:
    """(B, H, S, D) three times -> (B, H, S, D)."""
    if attn_mask is not None or any(value for name, value in options.items() if name != "scale"):
        raise ValueError(f"attention with a mask, dropout, causality or grouped heads is not counted: {options}")
    seen: Tensor = torch.ops.aten._scaled_dot_product_flash_attention(query, key, value)[0]  # noqa: SLF001
    return seen


def _fused(
    input: Tensor,  # noqa: A002 - torch's own name
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:
    del normalized_shape  # the last dimension, as in all that are counted
    result: Tensor = _FusedNorm.apply(input, weight, eps)  # type: ignore[no-untyped-call]
    return result


class _FusedNorm(torch.autograd.Function):
    """Keeps its input, the reciprocal root mean square of each row in float32, and its weight, as aten::_fused_rms_norm."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, weight: Tensor | None, eps: float | None) -> Tensor:
        wide = values.float()
        floor = torch.finfo(values.dtype).eps if eps is None else eps
        root = torch.rsqrt(wide.square().mean(-1, keepdim=True) + floor)
        ctx.save_for_backward(values, weight, root)
        result = (wide * root).to(values.dtype)
        return result if weight is None else result * weight

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        values, weight, root = ctx.saved_tensors
        gradient, wide = gradients[0].float(), values.float() * root
        scaled = gradient if weight is None else gradient * weight
        inner = (scaled * wide).mean(-1, keepdim=True)
        of_values = (root * (scaled - wide * inner)).to(values.dtype)
        if weight is None:
            return of_values, None, None
        return of_values, (gradient * wide).flatten(0, -2).sum(0).to(weight.dtype), None
