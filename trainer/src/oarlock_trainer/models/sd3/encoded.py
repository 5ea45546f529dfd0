"""What the encoders of a Stable Diffusion 3.5 model make, by their configurations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oarlock_trainer.models.encoded import Encoded, said
from oarlock_trainer.models.sd3.flavors import FLAVORS

if TYPE_CHECKING:
    from pathlib import Path

    from oarlock_api.weights import ModelFlavor

_CLIP_TOKENS, _T5_TOKENS = 77, 256
_POOLED = {"text_encoder": 768, "text_encoder_2": 1280}
PUBLISHED = Encoded(channels=16, factor=8, tokens=_CLIP_TOKENS + _T5_TOKENS, width=4096, pooled=sum(_POOLED.values()))


def read_encoded(model: Path, flavor: ModelFlavor) -> Encoded:
    """What a model's own encoders make; the published ones' where its directory is not here.

    A sequence is CLIP's tokens, whose width is filled up with zeros, and then T5's.
    """
    vae = said(model / "vae")
    blocks = vae.get("block_out_channels")
    short, long = (
        said(model / name, "tokenizer_config.json").get("model_max_length", usual)
        for name, usual in (("tokenizer", _CLIP_TOKENS), ("tokenizer_3", _T5_TOKENS))
    )
    return Encoded(
        channels=vae.get("latent_channels", PUBLISHED.channels),
        factor=2 ** (len(blocks) - 1) if blocks else PUBLISHED.factor,
        tokens=short + min(FLAVORS[flavor].text_tokens, long),
        width=said(model / "text_encoder_3").get("d_model", PUBLISHED.width),
        pooled=sum(said(model / name).get("projection_dim", usual) for name, usual in _POOLED.items()),
    )
