"""What the encoders of a Qwen-Image model make, by their configurations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oarlock_trainer.models.encoded import Encoded, said
from oarlock_trainer.models.qwenimage.flavors import FLAVORS

if TYPE_CHECKING:
    from pathlib import Path

    from oarlock_api.weights import ModelFlavor

DROPPED = 34
"""Tokens that stand before each caption, and of which nothing is kept: the same number for all captions."""
PUBLISHED = Encoded(channels=16, factor=8, tokens=1024, width=3584, pooled=0)


def text_tokens(flavor: ModelFlavor, longest: int) -> int:
    """Tokens that are kept of a text, padding included; `longest` is what the tokenizer takes."""
    return min(FLAVORS[flavor].text_tokens, longest - DROPPED)


def read_encoded(model: Path, flavor: ModelFlavor) -> Encoded:
    """What a model's own encoders make; the published ones' where its directory is not here.

    The language model's numbers stand in a part of the text encoder's configuration, or, as older versions of transformers
    wrote it, beside those of the pictures' network.
    """
    vae, text = said(model / "vae"), said(model / "text_encoder")
    halvings = vae.get("temperal_downsample")
    longest = said(model / "tokenizer", "tokenizer_config.json").get("model_max_length")
    return Encoded(
        channels=vae.get("z_dim", PUBLISHED.channels),
        factor=2 ** len(halvings) if halvings else PUBLISHED.factor,
        tokens=text_tokens(flavor, longest) if longest else PUBLISHED.tokens,
        width=(text.get("text_config") or text).get("hidden_size", PUBLISHED.width),
        pooled=PUBLISHED.pooled,
    )
