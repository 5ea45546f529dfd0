"""Matrix products of the blocks in float8, forward and backward, on weights that stay bfloat16.

Weights and activations are cast to e4m3, gradients to e5m2, each tensor with one scale that its largest value is taken
for at each use (dynamic, tensorwise): there is no state to save. Left as they are: everything outside the blocks, the
modulations (one row per sample), LoRA's small matrices, and layers whose sizes are no multiple of 16, which the hardware
asks for. Layers stay nn.Linear with their names, so that ZeRO, LoRA and checkpoints see no difference.

The casts pay only where they are fused with what comes before: with training.compile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.functional import ScalingType, scaled_mm

from oarlock_trainer.runtime.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable

_FORWARD, _BACKWARD = torch.float8_e4m3fn, torch.float8_e5m2
_MULTIPLE = 16
_FIRST_CAPABILITY = (8, 9)
_TINY = 1e-12


def require_float8(device: torch.device) -> None:
    """Raise ConfigurationError where the device has no matrix units for float8."""
    found = "a CPU"
    if device.type == "cuda":
        capability = torch.cuda.get_device_capability(device)
        if capability >= _FIRST_CAPABILITY:
            return
        found = f"compute capability {capability[0]}.{capability[1]}"
    raise ConfigurationError(
        f"training.precision: FP8 needs a GPU of compute capability 8.9 or newer (Ada, Hopper, Blackwell), this rank has "
        f"{found}: set training.precision to BF16"
    )


def use_float8(blocks: Iterable[nn.Module]) -> int:
    """Compute the blocks' matrix products in float8 from now on, in place; returns how many layers do."""
    number = 0
    for block in blocks:
        for name, module in block.named_modules():
            # Subclasses of nn.Linear are LoRA's factors, or somebody else's arithmetic.
            if (
                type(module) is nn.Linear
                and not any(part.startswith("norm") for part in name.split("."))
                and not module.in_features % _MULTIPLE
                and not module.out_features % _MULTIPLE
            ):
                module.__class__ = Float8Linear
                number += 1
    return number


def _cast(values: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Values that fill the range of `dtype`, in their shape, and the float32 scalar that undoes it.

    Scaled in float32, so that they are rounded once. The scale stays on the GPU: the product takes it from there.
    """
    limit = torch.finfo(dtype).max
    scale = limit / values.abs().amax().float().clamp(min=_TINY)
    return (values.float() * scale).clamp(-limit, limit).to(dtype), scale.reciprocal()


def _product(left: tuple[Tensor, Tensor], right: tuple[Tensor, Tensor], dtype: torch.dtype, *, fast: bool) -> Tensor:
    """Left (m, k) @ right (k, n) -> (m, n) in `dtype`. The hardware wants left by rows and right by columns.

    `fast`: the matrix units add up with less precision. For the forward pass alone, not for gradients.
    """
    rows, columns = left[0], right[0]
    if short := -rows.shape[1] % _MULTIPLE:  # tokens of the batch, where a gradient of weights is summed over them
        rows, columns = functional.pad(rows, (0, short)), functional.pad(columns, (0, 0, 0, short))
    return scaled_mm(
        rows.contiguous(),
        columns.t().contiguous().t(),
        left[1],
        ScalingType.TensorWise,
        right[1],
        ScalingType.TensorWise,
        output_dtype=dtype,
        use_fast_accum=fast,
    )


class Float8Linear(nn.Linear):
    """A linear layer whose products are float8; made of an nn.Linear by giving it this class."""

    def forward(self, values: Tensor) -> Tensor:
        """(..., in) -> (..., out) in the same type."""
        product: Tensor = _Float8Product.apply(values.flatten(0, -2), self.weight)  # type: ignore[no-untyped-call]
        result = product.view(*values.shape[:-1], -1)
        return result if self.bias is None else result + self.bias


class _Float8Product(torch.autograd.Function):
    """values (m, k) @ weight (n, k)^T -> (m, n). Keeps values as they came, and casts them once more in the backward pass."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(values, weight)
        cast, scale = _cast(weight, _FORWARD)
        return _product(_cast(values, _FORWARD), (cast.t(), scale), values.dtype, fast=values.is_cuda)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None]:
        values, weight = ctx.saved_tensors
        wants_values, wants_weight = ctx.needs_input_grad
        dtype = gradients[0].dtype
        cast, scale = _cast(gradients[0], _BACKWARD)
        return (
            _product((cast, scale), _cast(weight, _FORWARD), dtype, fast=False) if wants_values else None,
            _product((cast.t(), scale), _cast(values, _FORWARD), dtype, fast=False) if wants_weight else None,
        )
