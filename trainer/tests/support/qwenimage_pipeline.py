"""Qwen-Image's tiny model in diffusers' pipeline."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from diffusers.pipelines.qwenimage.pipeline_qwenimage import calculate_shift
from tiny_pipelines import Drawn, Record, own_lengths, shown

from oarlock_api.weights import ModelFamily, ModelFlavor
from oarlock_trainer.models.qwenimage import tiny

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from oarlock_trainer.models.objective.loss import MicroBatch


def texts(pipeline: Any, captions: list[str]) -> tuple[list[Tensor], None]:
    return own_lengths(*pipeline.encode_prompt(captions, max_sequence_length=tiny.TEXT_TOKENS)), None


def latents(pipeline: Any, pixels: np.ndarray, noise: Tensor) -> Tensor:
    """The pipeline's own way back is latents x latents_std + latents_mean, by channel."""
    found, config = pipeline.vae.encode(shown(pixels).unsqueeze(2)).latent_dist, pipeline.vae.config
    mean, deviation = (torch.tensor(one).view(1, -1, 1, 1) for one in (config.latents_mean, config.latents_std))
    return ((found.mean + found.std * noise.unsqueeze(2)).squeeze(2) - mean) / deviation


def predicted(pipeline: Any, model: Any, noisy: Tensor, batch: MicroBatch) -> Tensor:
    size, channels, height, width = noisy.shape
    tokens = model(
        hidden_states=pipeline._pack_latents(noisy, size, channels, height, width), timestep=batch.sigmas,
        encoder_hidden_states=batch.text, encoder_hidden_states_mask=batch.text_mask,
        img_shapes=[[(1, height // 2, width // 2)]] * size, return_dict=False,
    )[0]  # fmt: skip
    return pipeline._unpack_latents(tokens, height * 8, width * 8, 8).squeeze(2)


def shift(pipeline: Any, tokens: int) -> float:
    found = pipeline.scheduler.config
    numbers = (found.base_image_seq_len, found.max_image_seq_len, found.base_shift, found.max_shift)
    return math.exp(calculate_shift(tokens, *numbers))


RECORD = Record(
    key=ModelFamily.QWEN_IMAGE, flavor=ModelFlavor.V1, pipeline="QwenImagePipeline", tiny=tiny, files=11, texts=texts,
    is_padded=False, is_rounded=True, of_nothing=5, streamed="_network", latents=latents, near=0.02, predicted=predicted,
    shift=shift, batches=tuple({"lengths": lengths, "masked": True} for lengths in ((9, 40), (2,), (33, 33, 1))),
    draws=(Drawn(scale=1.0), Drawn(scale=4.0)), scale="true_cfg_scale",
)  # fmt: skip
