"""What the encoders of a FLUX.1 model make, by their configurations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oarlock_trainer.models.encoded import Encoded, said
from oarlock_trainer.models.flux.flavors import FLAVORS

if TYPE_CHECKING:
    from pathlib import Path

    from oarlock_api.weights import ModelFlavor

PUBLISHED = Encoded(channels=16, factor=8, tokens=512, width=4096, pooled=768)


def read_encoded(model: Path, flavor: ModelFlavor) -> Encoded:
    """What a model's own encoders make; the published ones' where its directory is not here."""
    vae = said(model / "vae")
    blocks = vae.get("block_out_channels")
    return Encoded(
        channels=vae.get("latent_channels", PUBLISHED.channels),
        factor=2 ** (len(blocks) - 1) if blocks else PUBLISHED.factor,
        tokens=min(
            FLAVORS[flavor].text_tokens,
            said(model / "tokenizer_2", "tokenizer_config.json").get("model_max_length", PUBLISHED.tokens),
        ),
        width=said(model / "text_encoder_2").get("d_model", PUBLISHED.width),
        pooled=said(model / "text_encoder").get("hidden_size", PUBLISHED.pooled),
    )
