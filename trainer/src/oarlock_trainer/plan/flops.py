"""How much arithmetic one picture takes, and what share of the hardware's peak a step reaches (MFU).

A token does not meet all matrices (another stream's), and modulation runs once per sample: "6 x parameters x tokens" would
overstate the work. The formula counts multiply-add as 2, per block 2 S for each weight that a token meets and 4 S^2 d for
attention; a backward pass costs twice a forward pass. Recomputation is no useful work and is not counted.

Under adapters the matrices are frozen: their backward pass has the product for the inputs' gradients, and none for the
weights' (half of what Kaplan et al. 2020, 2.1, count for it). Attention has no weights: both of its products still have two
operands that need a gradient each. The adapters' own work, 1 % at rank 16 on attention, is not counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oarlock_trainer.models.architecture import Architecture

_PEAKS = {
    "H100": 989e12,
    "H200": 989e12,
    "H800": 989e12,
    "GH200": 989e12,
    "B200": 2250e12,
    "GB200": 2250e12,
    "A100": 312e12,
    "L40S": 362e12,
}
"""Dense bf16 FLOP/s by a part of the device's name, from NVIDIA's data sheets."""


def training_flops(
    shape: Architecture, *, tokens: int, text_share: float = 0.0, frozen: bool = False, regularizes: bool = False
) -> float:
    """FLOPs of one sample's forward and backward pass. Of its tokens the text has `text_share`, 0..1.

    `frozen`: adapters alone are trained; `regularizes`: the model without them makes the target in one more forward pass.
    """
    matrices = matrix_flops(shape, tokens=tokens, text_share=text_share)
    attention = attention_flops(shape, tokens=tokens, text_share=text_share)
    return (2.0 if frozen else 3.0) * matrices + 3.0 * attention + regularizes * (matrices + attention)


def matrix_flops(shape: Architecture, *, tokens: int, text_share: float = 0.0) -> float:
    """FLOPs of the products with weights in one sample's forward pass."""
    return 2.0 * sum(kind.number * kind.met_by(text_share) for kind in shape.kinds) * tokens


def attention_flops(shape: Architecture, *, tokens: int, text_share: float = 0.0) -> float:
    """FLOPs of attention in one sample's forward pass: queries with keys, and weights with values, in every block."""
    return 4.0 * shape.width * sum(kind.number * kind.attended(tokens, text_share) for kind in shape.kinds)


def peak_flops(device_name: str) -> float | None:
    """Dense bf16 peak of a GPU in FLOP/s, or None where it is not known: then no MFU is reported."""
    known = [(len(part), peak) for part, peak in _PEAKS.items() if part in device_name]
    return max(known)[1] if known else None


def model_flops_utilization(*, flops: float, seconds: float, devices: int, peak: float) -> float:
    """Share of the peak that useful work reaches, 0..1."""
    return flops / (seconds * devices * peak) if seconds > 0 else 0.0
