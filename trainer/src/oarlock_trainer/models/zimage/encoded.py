"""What the encoders of a Z-Image model make, by their configurations."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from oarlock_trainer.models.encoded import Encoded
from oarlock_trainer.models.zimage.flavors import FLAVORS

if TYPE_CHECKING:
    from pathlib import Path

    from oarlock_api.weights import ModelFlavor

PUBLISHED = Encoded(channels=16, factor=8, tokens=512, width=2560, pooled=0)


def read_encoded(model: Path, flavor: ModelFlavor) -> Encoded:
    """What a model's own encoders make; the published ones' where its directory is not here."""
    vae = _config(model / "vae")
    blocks = vae.get("block_out_channels")
    return Encoded(
        channels=vae.get("latent_channels", PUBLISHED.channels),
        factor=2 ** (len(blocks) - 1) if blocks else PUBLISHED.factor,
        tokens=min(
            FLAVORS[flavor].text_tokens,
            _config(model / "tokenizer", "tokenizer_config.json").get("model_max_length", PUBLISHED.tokens),
        ),
        width=_config(model / "text_encoder").get("hidden_size", PUBLISHED.width),
        pooled=PUBLISHED.pooled,
    )


def _config(folder: Path, name: str = "config.json") -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads((folder / name).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found
