"""The frozen weights of the blocks in fewer bits, made whole in bfloat16 where they are used: lora.quantizeBase.

    Int8, FP8   a float32 scale for each output and 8 bits for each weight: whole numbers to 127, or e4m3 to 448
    NF4         a float32 scale for each 64 weights, and 4 bits that stand for quantiles of a normal distribution
                (Dettmers et al. 2023), by bitsandbytes

Inputs and products stay bfloat16. The backward pass makes a weight whole once more: autograd would keep each layer's until
then, and with them what was to be saved. Embedders and the last layer, less than a percent, stay as they are.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional

from oarlock_api.weights import QuantizeBase

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor

_BLOCK = 64
_CODES = {QuantizeBase.INT8: torch.int8, QuantizeBase.FP8: torch.float8_e4m3fn}
_LARGEST = {QuantizeBase.INT8: 127.0, QuantizeBase.FP8: 448.0}


class Packed(NamedTuple):
    """A weight of `shape` (out, in) in the format `kind`."""

    kind: QuantizeBase
    shape: tuple[int, int]
    codes: Tensor
    """(out, in) int8 or e4m3; NF4: (out x in / 2, 1) uint8, two weights in each."""
    scales: Tensor
    """(out, 1) float32; NF4: (out x in / 64,) float32."""


def quantize(blocks: Iterable[nn.Module], kind: QuantizeBase, *, device: torch.device) -> None:
    """Replace the linear layers of the blocks by quantized ones on a device, in place, one after another."""
    if kind is QuantizeBase.NONE:
        return
    for block in blocks:
        for parent in block.modules():
            for name, layer in list(parent.named_children()):
                if type(layer) is nn.Linear:
                    setattr(parent, name, FrozenLinear(layer.to(device), kind))


class FrozenLinear(nn.Module):
    """A linear layer whose quantized weight is not trained. (..., in) -> (..., out)."""

    def __init__(self, layer: nn.Linear, kind: QuantizeBase) -> None:
        """Take over what `layer` computes."""
        super().__init__()
        self.bias = layer.bias
        self._packed = pack(layer.weight.detach(), kind)  # on its device already; no part of the model's state

    def forward(self, values: Tensor) -> Tensor:
        """Its product, in the type of the values."""
        result: Tensor = _UnpackedProduct.apply(values, self.bias, *self._packed)  # type: ignore[no-untyped-call]
        return result


def pack(weight: Tensor, kind: QuantizeBase) -> Packed:
    """Quantize a weight (out, in)."""
    shape = (weight.shape[0], weight.shape[1])
    if kind is QuantizeBase.NF4:
        logging.getLogger("bitsandbytes").setLevel(logging.ERROR)  # it offers kernels from the internet
        from bitsandbytes.functional import quantize_4bit  # noqa: PLC0415 - seconds that others need not pay

        codes, state = quantize_4bit(weight.contiguous(), blocksize=_BLOCK, quant_type="nf4")
        return Packed(kind, shape, codes, state.absmax)
    whole = weight.float()
    scales = whole.abs().amax(dim=1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny) / _LARGEST[kind]
    codes = whole / scales
    return Packed(kind, shape, (codes.round() if kind is QuantizeBase.INT8 else codes).to(_CODES[kind]), scales)


def unpack(packed: Packed, dtype: torch.dtype) -> Tensor:
    """The weight (out, in) in `dtype`, as near as the format has it. Int8 and FP8 are scaled in float32, and rounded once."""
    if packed.kind is not QuantizeBase.NF4:
        return (packed.codes.to(torch.float32) * packed.scales).to(dtype)
    from bitsandbytes.functional import QuantState, dequantize_4bit  # noqa: PLC0415

    state = QuantState(packed.scales, shape=torch.Size(packed.shape), dtype=dtype, blocksize=_BLOCK, quant_type="nf4")
    result: Tensor = dequantize_4bit(packed.codes, state)
    return result


class _UnpackedProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, bias: Tensor | None, *packed: Any) -> Tensor:
        ctx.packed = Packed(*packed)
        return functional.linear(values, unpack(ctx.packed, values.dtype), bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (gradient,) = gradients
        return (gradient @ unpack(ctx.packed, gradient.dtype), *[None] * (1 + len(Packed._fields)))
