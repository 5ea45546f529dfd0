"""Stable Diffusion 3.5's tiny model in diffusers' pipeline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tiny_pipelines import Drawn, Record, shown

from oarlock_api.weights import ModelFamily, ModelFlavor
from oarlock_trainer.models.sd3 import tiny

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from oarlock_trainer.models.objective.loss import MicroBatch


def texts(pipeline: Any, captions: list[str]) -> tuple[Tensor, Tensor]:
    sequences, _, pooled, _ = pipeline.encode_prompt(
        captions, None, None, do_classifier_free_guidance=False, max_sequence_length=tiny.TEXT_TOKENS
    )
    return sequences, pooled


def latents(pipeline: Any, pixels: np.ndarray, noise: Tensor) -> Tensor:
    found = pipeline.vae.encode(shown(pixels)).latent_dist
    return (found.mean + found.std * noise - 0.0609) * 1.5305


def predicted(_pipeline: Any, model: Any, noisy: Tensor, batch: MicroBatch) -> Tensor:
    return model(noisy, batch.text, batch.pooled, timestep=batch.sigmas * 1000, return_dict=False)[0]


RECORD = Record(
    key=ModelFamily.STABLE_DIFFUSION_3, flavor=ModelFlavor.LARGE, pipeline="StableDiffusion3Pipeline", tiny=tiny, files=16,
    texts=texts, of_nothing=78, streamed="_t5", latents=latents, near=0.02, predicted=predicted,
    shift=lambda pipeline, _: pipeline.scheduler.config.shift, draws=(Drawn(scale=1.0), Drawn(scale=4.5)),
)  # fmt: skip
"""Of an empty caption CLIP's 77 tokens and T5's end token are left."""
