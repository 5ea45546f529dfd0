"""Z-Image's tiny model in diffusers' pipeline."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from diffusers.pipelines.z_image.pipeline_z_image import calculate_shift
from tiny_pipelines import Drawn, Record, shown

from oarlock_api.weights import ModelFamily, ModelFlavor
from oarlock_trainer.models.zimage import tiny

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from oarlock_trainer.models.objective.loss import MicroBatch


def texts(pipeline: Any, captions: list[str]) -> tuple[list[Tensor], None]:
    return pipeline.encode_prompt(captions, max_sequence_length=tiny.TEXT_TOKENS)[0], None


def latents(pipeline: Any, pixels: np.ndarray, noise: Tensor) -> Tensor:
    """The pipeline's own way back is latents / scaling_factor + shift_factor."""
    found, config = pipeline.vae.encode(shown(pixels)).latent_dist, pipeline.vae.config
    return (found.mean + found.std * noise - config.shift_factor) * config.scaling_factor


def predicted(_pipeline: Any, model: Any, noisy: Tensor, batch: MicroBatch) -> Tensor:
    """It is told 1 - sigma, looks from the noise to the picture, and sees each caption at its own length."""
    mask = batch.text_mask
    own = [*batch.text] if mask is None else [text[seen] for text, seen in zip(batch.text, mask, strict=True)]
    found = model(list(noisy.unsqueeze(2)), (1000 - batch.sigmas * 1000) / 1000, own, return_dict=False)[0]
    return -torch.stack(list(found)).squeeze(2)


RECORD = Record(
    key=ModelFamily.Z_IMAGE, flavor=ModelFlavor.BASE, pipeline="ZImagePipeline", tiny=tiny, files=11, texts=texts,
    is_padded=False, of_nothing=19, streamed="_encoder", latents=latents, near=0.01, predicted=predicted,
    batches=tuple({"lengths": lengths, "masked": True} for lengths in ((9, 40), (2,), (33, 33, 1))),
    zeros=((8, 8), (16, 16)), shift=lambda _, tokens: math.exp(calculate_shift(tokens)),
    draws=(Drawn(scale=0.0), Drawn(scale=3.0)),
)  # fmt: skip
"""Of 16 x 16 latents no token stands for padding, whose own parameter is the model's first one."""
