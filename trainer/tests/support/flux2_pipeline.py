"""FLUX.2's tiny models in diffusers' pipelines: Klein, and Dev, where the tokenizer stands in for the processor."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from diffusers.pipelines.flux2.pipeline_flux2_klein import Flux2KleinPipeline, compute_empirical_mu
from PIL import Image
from tiny_pipelines import Drawn, Record

from oarlock_api.weights import ModelFamily, ModelFlavor
from oarlock_trainer.models.flux2 import tiny

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from oarlock_trainer.models.objective.loss import MicroBatch


def texts(pipeline: Any, captions: list[str]) -> tuple[Tensor, None]:
    return pipeline.encode_prompt(captions, max_sequence_length=tiny.TEXT_TOKENS)[0], None


def latents(pipeline: Any, pixels: np.ndarray, _noise: Tensor) -> Tensor:
    height, width = pixels.shape[1:3]
    shown = [pipeline.image_processor.preprocess(Image.fromarray(one), height=height, width=width) for one in pixels]
    return torch.cat([pipeline._encode_vae_image(one, None) for one in shown])


def predicted(pipeline: Any, model: Any, noisy: Tensor, batch: MicroBatch) -> Tensor:
    ids = pipeline._prepare_latent_ids(noisy)
    tokens = model(
        hidden_states=pipeline._pack_latents(noisy), timestep=batch.sigmas, img_ids=ids, encoder_hidden_states=batch.text,
        guidance=batch.guidance if model.config.guidance_embeds else None,
        txt_ids=pipeline._prepare_text_ids(batch.text), return_dict=False,
    )[0]  # fmt: skip
    return Flux2KleinPipeline._unpack_latents_with_ids(tokens, ids, *noisy.shape[2:])


KLEIN = Record(
    key=ModelFamily.FLUX2, flavor=ModelFlavor.KLEIN_BASE_4B, pipeline="Flux2KleinPipeline", tiny=tiny, files=11,
    texts=texts, of_nothing=25, streamed="_network", latents=latents, near=0.01, predicted=predicted,
    shift=lambda _, tokens: math.exp(compute_empirical_mu(tokens, 50)), shifted=(256, 1024, 4096),
    draws=(Drawn(scale=1.0), Drawn(scale=4.0)), negative="",
)  # fmt: skip
DEV = replace(
    KLEIN, flavor=ModelFlavor.DEV, pipeline="Flux2Pipeline", options={"dev": True}, of_nothing=tiny.TEXT_TOKENS,
    is_told=True,
)  # fmt: skip
"""What is padded in front is not cut off behind."""
