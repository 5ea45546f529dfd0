"""How a pass with the prompt and one with the negative prompt become one direction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor


class Guide(Protocol):
    """Two predictions -> the direction of a step."""

    def __call__(self, prompt: Tensor, negative: Tensor, scale: float) -> Tensor:
        """(B, C, h, w) float32 twice -> the same. `scale` 1 is the prompt alone."""
        ...


def along(prompt: Tensor, negative: Tensor, scale: float) -> Tensor:
    """Classifier-free guidance itself: `scale` times as far from the negative prompt as the prompt is."""
    return negative + scale * (prompt - negative)
