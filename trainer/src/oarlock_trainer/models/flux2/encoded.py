"""What the encoders of a FLUX.2 model make, by their configurations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oarlock_api.weights import ModelFlavor
from oarlock_trainer.models.encoded import Encoded, said
from oarlock_trainer.models.flux2.flavors import FLAVORS

if TYPE_CHECKING:
    from pathlib import Path

_PATCH = 2
LAYERS = 3
"""Of the language model, whose outputs stand side by side in what the transformer is given of each token."""


def _published(width: int) -> Encoded:
    return Encoded(channels=128, factor=16, tokens=512, width=LAYERS * width, pooled=0)


KLEIN_4B, KLEIN_9B, DEV = _published(2560), _published(4096), _published(5120)
_PUBLISHED = {
    ModelFlavor.KLEIN_4B: KLEIN_4B,
    ModelFlavor.KLEIN_BASE_4B: KLEIN_4B,
    ModelFlavor.KLEIN_9B: KLEIN_9B,
    ModelFlavor.KLEIN_BASE_9B: KLEIN_9B,
    ModelFlavor.DEV: DEV,
}


def read_encoded(model: Path, flavor: ModelFlavor) -> Encoded:
    """What a model's own encoders make; the published ones' where its directory is not here."""
    published = _PUBLISHED[flavor]
    vae, text = said(model / "vae"), said(model / "text_encoder")
    # Dev's also sees pictures: what it reads with has a configuration of its own.
    blocks, width = vae.get("block_out_channels"), text.get("text_config", text).get("hidden_size")
    channels = vae.get("latent_channels")
    return Encoded(
        channels=_PATCH**2 * channels if channels else published.channels,
        factor=_PATCH * 2 ** (len(blocks) - 1) if blocks else published.factor,
        tokens=min(
            FLAVORS[flavor].text_tokens,
            said(model / "tokenizer", "tokenizer_config.json").get("model_max_length", published.tokens),
        ),
        width=LAYERS * width if width else published.width,
        pooled=0,
    )
