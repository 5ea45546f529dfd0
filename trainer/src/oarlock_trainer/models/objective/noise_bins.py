"""The loss by noise level, so that a run shows where on the way from picture to noise it learns.

Five bins of sigma, each a fifth: sums and counts are added up over micro-batches and ranks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

BINS = 5
NAMES = tuple(f"{number / BINS:.1f}-{(number + 1) / BINS:.1f}" for number in range(BINS))


def sums(losses: Tensor, sigmas: Tensor) -> Tensor:
    """(2 BINS,) float32: of each bin the sum of the losses (B,) whose sigma (B,) lies in it, then of each their number.

    Stays on the device of the losses, and is read with them, once in a step.
    """
    place = (sigmas * BINS).long().clamp(max=BINS - 1)
    # (B, BINS). Picking a bin's losses by a mask would wait for the GPU, to know how many they are.
    within = place[:, None] == torch.arange(BINS, device=losses.device)
    total = torch.where(within, losses.detach()[:, None], 0.0).sum(dim=0)
    return torch.cat([total, within.sum(dim=0).to(total.dtype)])


def means(values: Sequence[float]) -> dict[str, float]:
    """Mean loss of each bin that has samples, by its name; `values` are sums as `sums` has them."""
    return {
        name: total / count for name, total, count in zip(NAMES, values[:BINS], values[BINS:], strict=True) if count
    }
