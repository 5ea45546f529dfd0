"""A FLUX.1 model of the real width, with a few of its blocks: the rest is the tiny model's."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import torch

from oarlock_trainer.models.classes import imported
from oarlock_trainer.models.family import TRANSFORMER
from oarlock_trainer.models.flux.family import FLUX1
from oarlock_trainer.models.flux.tiny import LATENT_CHANNELS, POOLED_WIDTH, TEXT_WIDTH

if TYPE_CHECKING:
    from pathlib import Path


def write(tiny: Path, folder: Path, *, double: int = 2, single: int = 4, heads: int = 24) -> Path:
    """The model's folder, beside whatever `tiny` has: with 24 heads of 128, 1.3 billion random parameters in bfloat16."""
    shutil.copytree(tiny, folder, ignore=shutil.ignore_patterns(TRANSFORMER))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = imported(FLUX1.transformer)(
            in_channels=4 * LATENT_CHANNELS,
            num_layers=double,
            num_single_layers=single,
            num_attention_heads=heads,
            joint_attention_dim=TEXT_WIDTH,
            pooled_projection_dim=POOLED_WIDTH,
            guidance_embeds=True,
        )
    torch.nn.Module.to(model, torch.bfloat16).save_pretrained(folder / TRANSFORMER)
    return folder
