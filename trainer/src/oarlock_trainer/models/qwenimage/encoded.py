"""What the encoders of a Qwen-Image model make, by their configurations."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from oarlock_api.weights import ModelFlavor
from oarlock_trainer.models.encoded import Encoded, said
from oarlock_trainer.models.qwenimage.flavors import FLAVORS
from oarlock_trainer.models.qwenimage.sight import EDGE, PROCESSOR, read_bounds

if TYPE_CHECKING:
    from pathlib import Path

DROPPED = 34
"""Tokens that stand before each caption, and of which nothing is kept: the same number for all captions."""
EDIT_DROPPED = 64
"""The same where the text encoder sees a picture, whose tokens stand behind them."""
_FRAME = 2
"""Tokens around a picture's."""
_SEEN = 1456
"""The most that a picture has which is not longer than ten times its height: a square one has 1369."""
PUBLISHED = Encoded(channels=16, factor=8, tokens=1024, width=3584, pooled=0)
PUBLISHED_EDIT = replace(PUBLISHED, tokens=FLAVORS[ModelFlavor.EDIT].text_tokens + _SEEN + _FRAME)


def text_tokens(flavor: ModelFlavor, longest: int) -> int:
    """Tokens that are kept of a text, padding included; `longest` is what the tokenizer takes."""
    return min(FLAVORS[flavor].text_tokens, longest - DROPPED)


def words(flavor: ModelFlavor, longest: int) -> int:
    """Tokens that are kept of a text behind a picture, without the picture's own."""
    return min(FLAVORS[flavor].text_tokens, longest - EDIT_DROPPED)


def _most(model: Path, flavor: ModelFlavor) -> int:
    """Tokens of the longest text, with a picture where the flavor has such."""
    sees = FLAVORS[flavor].sight is not None
    longest = said(model / (PROCESSOR if sees else "tokenizer"), "tokenizer_config.json").get("model_max_length")
    if not longest:
        return (PUBLISHED_EDIT if sees else PUBLISHED).tokens
    if not sees:
        return text_tokens(flavor, longest)
    return words(flavor, longest) + min(_SEEN, read_bounds(model).most // EDGE**2) + _FRAME


def read_encoded(model: Path, flavor: ModelFlavor) -> Encoded:
    """What a model's own encoders make; the published ones' where its directory is not here.

    The language model's numbers stand in a part of the text encoder's configuration, or, as older versions of transformers
    wrote it, beside those of the pictures' network.
    """
    vae, text = said(model / "vae"), said(model / "text_encoder")
    halvings = vae.get("temperal_downsample")
    return Encoded(
        channels=vae.get("z_dim", PUBLISHED.channels),
        factor=2 ** len(halvings) if halvings else PUBLISHED.factor,
        tokens=_most(model, flavor),
        width=(text.get("text_config") or text).get("hidden_size", PUBLISHED.width),
        pooled=PUBLISHED.pooled,
    )
