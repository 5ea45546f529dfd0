"""Wan's tiny model in diffusers' pipeline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from tiny_pipelines import Drawn, Record, shown

from oarlock_api.weights import ModelFamily, ModelFlavor
from oarlock_trainer.models.wan import tiny
from oarlock_trainer.models.wan.latents import joined

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from oarlock_trainer.models.objective.loss import MicroBatch


def texts(pipeline: Any, captions: list[str]) -> tuple[Tensor, None]:
    """With zeros for padding."""
    found, _ = pipeline.encode_prompt(captions, do_classifier_free_guidance=False, max_sequence_length=tiny.TEXT_TOKENS)
    return found, None


def latents(pipeline: Any, pixels: np.ndarray, _noise: Tensor) -> Tensor:
    """The mean; the pipeline's own way back is latents x latents_std + latents_mean, by channel."""
    given = shown(pixels)
    vae = pipeline.vae
    found = vae.encode(given if given.ndim == 5 else given.unsqueeze(2)).latent_dist.mode()
    mean, deviation = (
        torch.tensor(one).view(1, -1, 1, 1, 1) for one in (vae.config.latents_mean, vae.config.latents_std)
    )
    return joined((found - mean) / deviation)


def predicted(_pipeline: Any, model: Any, noisy: Tensor, batch: MicroBatch) -> Tensor:
    found = model(
        hidden_states=noisy.unflatten(1, (tiny.LATENT_CHANNELS, -1)), timestep=1000 * batch.sigmas,
        encoder_hidden_states=batch.text, return_dict=False,
    )[0]  # fmt: skip
    return found.flatten(1, 2)


RECORD = Record(
    key=ModelFamily.WAN, flavor=ModelFlavor.T2V1_3B, pipeline="WanPipeline", tiny=tiny, files=10, texts=texts,
    is_rounded=True, has_zeros=True, of_nothing=1, streamed="_encoder", latents=latents, near=0.01, frames=(1, 9),
    predicted=predicted, batches=({"frames": 1}, {"frames": 3}),
    shift=lambda pipeline, _: pipeline.scheduler.config.flow_shift, shifted=(16, 4096, 32_760), steps=6,
    draws=tuple(Drawn(scale=scale, frames=frames) for scale in (1.0, 5.0) for frames in (1, 9)),
)  # fmt: skip
