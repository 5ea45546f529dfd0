"""What the factors of LoKr adapters are like: LyCORIS' rules, by numbers alone, so that planning needs no torch.

A layer's update is a Kronecker product: W1 (a, c) and W2 (b, d) make (a b, c d), which are the layer's outputs and inputs.
Each may be a product of rank r itself, where that has fewer numbers (Yeh et al. 2023, "LyCORIS").
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from oarlock_api.weights import Lokr
from oarlock_trainer.models.adapters.targets import matching, names_of

if TYPE_CHECKING:
    from oarlock_api.weights import Lora
    from oarlock_trainer.models.family import Presets

W1, W1_A, W1_B = "lokr_w1", "lokr_w1_a", "lokr_w1_b"
W2, W2_A, W2_B = "lokr_w2", "lokr_w2_a", "lokr_w2_b"
FACTORS = (W1, W1_A, W1_B, W2, W2_A, W2_B)


def factorized(size: int, factor: int) -> tuple[int, int]:
    """Two whole numbers whose product is `size`, the smaller one first.

    One is `factor` where that divides `size`; else the smaller one is the largest divisor that is not above it. -1: no bound.
    """
    if factor > 0 and size % factor == 0:
        small = min(factor, size // factor)
    else:
        bound = math.isqrt(size)
        small = max(one for one in range(1, bound + 1) if size % one == 0 and (factor < 0 or one <= factor))
    return small, size // small


def factor_shapes(
    layer: str, *, outputs: int, inputs: int, settings: Lora, presets: Presets
) -> dict[str, tuple[int, int]]:
    """Name -> shape of each factor beside a linear layer, which is named as in the transformer."""
    lokr, rank = settings.lokr or Lokr(), settings.rank
    factor = _factor(layer, lokr, presets)
    (a, b), (c, d) = factorized(outputs, factor), factorized(inputs, factor)
    taken_apart = lokr.decompose_both and rank < max(a, c) / 2
    first = {W1_A: (a, rank), W1_B: (rank, c)} if taken_apart else {W1: (a, c)}
    if not lokr.full_matrix and rank < max(b, d) / 2:
        return first | {W2_A: (b, rank), W2_B: (rank, d)}
    return first | {W2: (b, d)}


def _factor(layer: str, lokr: Lokr, presets: Presets) -> int:
    named = (
        one.factor for one in lokr.factors if any(matching(name, [layer]) for name in names_of(one.targets, presets))
    )
    return next(named, lokr.factor)
