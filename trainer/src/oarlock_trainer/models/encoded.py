"""How large is what a model's frozen encoders make."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

_BFLOAT16 = 2
_Side = TypeVar("_Side", int, np.ndarray)


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded:
    """What the frozen encoders make: `channels` x 1/`factor` of each side, `tokens` x `width` and `pooled` of a caption."""

    channels: int
    factor: int
    tokens: int
    width: int
    pooled: int

    def latents(self, width: _Side, height: _Side) -> _Side:
        """Bytes of the latents of a picture, or of many."""
        found: _Side = self.channels * (width // self.factor) * (height // self.factor) * _BFLOAT16
        return found

    def bytes_of(self, channels: _Side, width: _Side, height: _Side) -> _Side:
        """The same of other channels, such as a pair's."""
        found: _Side = channels * (width // self.factor) * (height // self.factor) * _BFLOAT16
        return found

    @property
    def sequence(self) -> int:
        """Bytes of a caption's sequence, padding included."""
        return self.tokens * self.width * _BFLOAT16

    @property
    def caption(self) -> int:
        """Bytes of a caption's embeddings, padding included: what is kept without it is known only once it is encoded."""
        return self.sequence + self.pooled * _BFLOAT16


def said(folder: Path, name: str = "config.json") -> dict[str, Any]:
    """What the configuration in a model's folder says; nothing where it is not here, or cannot be read."""
    try:
        found: dict[str, Any] = json.loads((folder / name).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found
