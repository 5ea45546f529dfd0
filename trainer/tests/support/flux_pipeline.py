"""FLUX.1's tiny model in diffusers' pipeline."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from diffusers.pipelines.flux.pipeline_flux import calculate_shift
from tiny_pipelines import CPU, Drawn, Record, shown

from oarlock_api.weights import ModelFamily, ModelFlavor
from oarlock_trainer.models.flux import tiny

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from oarlock_trainer.models.objective.loss import MicroBatch


def texts(pipeline: Any, captions: list[str]) -> tuple[Tensor, Tensor]:
    sequences, pooled, _ = pipeline.encode_prompt(captions, None, max_sequence_length=tiny.TEXT_TOKENS)
    return sequences, pooled


def latents(pipeline: Any, pixels: np.ndarray, noise: Tensor) -> Tensor:
    found = pipeline.vae.encode(shown(pixels)).latent_dist
    return (found.mean + found.std * noise - 0.1159) * 0.3611


def predicted(pipeline: Any, model: Any, noisy: Tensor, batch: MicroBatch) -> Tensor:
    size, channels, height, width = noisy.shape
    tokens = model(
        hidden_states=pipeline._pack_latents(noisy, size, channels, height, width), timestep=batch.sigmas,
        guidance=batch.guidance, pooled_projections=batch.pooled, encoder_hidden_states=batch.text,
        txt_ids=torch.zeros(batch.text.shape[1], 3), return_dict=False,
        img_ids=pipeline._prepare_latent_image_ids(size, height // 2, width // 2, CPU, torch.float32),
    )[0]  # fmt: skip
    return pipeline._unpack_latents(tokens, height * 8, width * 8, 8)


RECORD = Record(
    key=ModelFamily.FLUX1, flavor=ModelFlavor.DEV, pipeline="FluxPipeline", tiny=tiny, files=14, texts=texts,
    of_nothing=1, streamed="_t5", latents=latents, near=0.01, predicted=predicted, is_told=True,
    shift=lambda _, tokens: math.exp(calculate_shift(tokens)), draws=(Drawn(scale=1.0), Drawn(scale=3.5)),
)  # fmt: skip
"""Of an empty caption T5's end token is left."""
