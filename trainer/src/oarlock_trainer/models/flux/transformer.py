"""Loading the FLUX.1 transformer of diffusers, and knowing what it costs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from oarlock_trainer.errors import ConfigurationError
from oarlock_trainer.models.flux.classes import transformer_class
from oarlock_trainer.models.flux.folder import TRANSFORMER, loading

if TYPE_CHECKING:
    from pathlib import Path

    from torch import nn


@dataclass(frozen=True, slots=True)
class Shape:
    """What the transformer's configuration says of it."""

    blocks: int
    width: int
    has_guidance: bool
    packed_channels: int
    text_width: int


def read_shape(model: Path) -> Shape:
    """Shape of the transformer in a diffusers directory.

    Raises ConfigurationError where there is none.
    """
    path = model / TRANSFORMER / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"training.model: {path} cannot be read ({error}): model.path must be a FLUX.1 directory in the layout of "
            "diffusers, with transformer, vae, text_encoder, text_encoder_2, tokenizer and tokenizer_2"
        ) from error
    return Shape(
        blocks=config["num_layers"] + config["num_single_layers"],
        width=config["num_attention_heads"] * config["attention_head_dim"],
        has_guidance=bool(config.get("guidance_embeds")),
        packed_channels=config["in_channels"],
        text_width=config["joint_attention_dim"],
    )


def load(model: Path) -> nn.Module:
    """The transformer in bfloat16, in training mode, as diffusers computes it: `tuning.tune` makes it fast."""
    import torch  # noqa: PLC0415

    with loading(model / TRANSFORMER):
        transformer = transformer_class().from_pretrained(
            model / TRANSFORMER, dtype=torch.bfloat16, local_files_only=True, low_cpu_mem_usage=False
        )
    transformer.train()
    transformer.requires_grad_(requires_grad=True)
    result: nn.Module = transformer
    return result
