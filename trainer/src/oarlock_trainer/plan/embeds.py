"""How many bytes the cached embeddings of a job take: a model, from the sizes of its buckets."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from oarlock_trainer.models.folder import TEXT_TOKENS

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from oarlock_api.weights import ModelFlavor
    from oarlock_trainer.data.buckets import Size

_BFLOAT16 = 2
_Side = TypeVar("_Side", int, np.ndarray)


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded:
    """What the frozen encoders make: `channels` x 1/`factor` of each side, `tokens` x `width` and `pooled` of a caption."""

    channels: int = 16
    factor: int = 8
    tokens: int = 512
    width: int = 4096
    pooled: int = 768

    def latents(self, width: _Side, height: _Side) -> _Side:
        """Bytes of the latents of a picture, or of many."""
        found: _Side = self.channels * (width // self.factor) * (height // self.factor) * _BFLOAT16
        return found

    @property
    def caption(self) -> int:
        """Bytes of a caption's embeddings, padding included: what is kept without it is known only once it is encoded."""
        return (self.tokens * self.width + self.pooled) * _BFLOAT16


def read_encoded(model: Path, flavor: ModelFlavor) -> Encoded:
    """What a model's own encoders make; FLUX.1's where its directory is not here."""
    published = Encoded()
    vae = _config(model / "vae")
    blocks = vae.get("block_out_channels")
    return Encoded(
        channels=vae.get("latent_channels", published.channels),
        factor=2 ** (len(blocks) - 1) if blocks else published.factor,
        tokens=min(
            TEXT_TOKENS[flavor],
            _config(model / "tokenizer_2", "tokenizer_config.json").get("model_max_length", published.tokens),
        ),
        width=_config(model / "text_encoder_2").get("d_model", published.width),
        pooled=_config(model / "text_encoder").get("hidden_size", published.pooled),
    )


def total(pictures: Iterable[tuple[Size, int]], captions: int, encoded: Encoded) -> tuple[int, int]:
    """(latents, text) in bytes, of pictures by size and distinct captions."""
    latents = sum(encoded.latents(size.width, size.height) * count for size, count in pictures)
    return latents, captions * encoded.caption


def _config(folder: Path, name: str = "config.json") -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads((folder / name).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found
