"""What the encoders of a Wan model make, by their configurations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oarlock_trainer.models.encoded import Encoded, said
from oarlock_trainer.models.wan.flavors import FLAVORS

if TYPE_CHECKING:
    from pathlib import Path

    from oarlock_api.weights import ModelFlavor

PUBLISHED = Encoded(channels=16, factor=8, tokens=512, width=4096, pooled=0)


def read_encoded(model: Path, flavor: ModelFlavor) -> Encoded:
    """What a model's own encoders make; the published ones' where its directory is not here. Channels are a frame's."""
    vae = said(model / "vae")
    return Encoded(
        channels=vae.get("z_dim", PUBLISHED.channels),
        factor=vae.get("scale_factor_spatial", PUBLISHED.factor),
        tokens=min(
            FLAVORS[flavor].text_tokens,
            said(model / "tokenizer", "tokenizer_config.json").get("model_max_length", PUBLISHED.tokens),
        ),
        width=said(model / "text_encoder").get("d_model", PUBLISHED.width),
        pooled=PUBLISHED.pooled,
    )
