"""Pictures by diffusers' own pipeline, beside those of our denoising loop: same weights, noise, prompt and scheduler.

    python pictures_in_diffusers.py MODEL

Writes JSON: for each case the largest difference of any value of 0 to 255, and the mean one. A process of its own,
because the pipeline has to be imported before anything of ours.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import torch
from diffusers import FluxPipeline

from oarlock_trainer.models.flux.loss import pack
from oarlock_trainer.validation.decoding import PictureDecoder
from oarlock_trainer.validation.sampling import Guidance, Text, denoise, draw_noise, read_scheduler

PROMPT, NEGATIVE = "two cats asleep on a red chair", "the surface of the moon"
WIDTH, HEIGHT, STEPS, SEED = 96, 64, 5, 7


def ours(model: Path, pipeline: FluxPipeline, *, scale: float, told: float) -> np.ndarray:
    """The picture of our loop."""

    def text(prompt: str) -> Text:
        sequence, pooled, _ = pipeline.encode_prompt(prompt, prompt)
        return Text(sequence=sequence, pooled=pooled)

    latents = denoise(
        pipeline.transformer,
        draw_noise(SEED, channels=4, width=WIDTH, height=HEIGHT),
        text(PROMPT),
        guidance=Guidance(told=told, scale=scale, negative=text(NEGATIVE)),
        scheduler=read_scheduler(model),
        steps=STEPS,
        go_on=lambda: None,
    )
    return np.asarray(PictureDecoder(model, torch.device("cpu")).decode(latents), dtype=np.float32)


def theirs(pipeline: FluxPipeline, kind: torch.dtype, *, scale: float, told: float) -> np.ndarray:
    """The picture of the pipeline."""
    latents = pipeline(
        PROMPT,
        negative_prompt=NEGATIVE if scale > 1 else None,
        true_cfg_scale=scale,
        guidance_scale=told,
        width=WIDTH,
        height=HEIGHT,
        num_inference_steps=STEPS,
        latents=pack(draw_noise(SEED, channels=4, width=WIDTH, height=HEIGHT)).to(kind),
        output_type="latent",
    ).images
    pipeline.vae.float()  # whose rounding is not the loop's
    unpacked = pipeline._unpack_latents(latents.float(), HEIGHT, WIDTH, pipeline.vae_scale_factor)
    scaled = unpacked / pipeline.vae.config.scaling_factor + pipeline.vae.config.shift_factor
    with torch.no_grad():
        pixels = pipeline.vae.decode(scaled, return_dict=False)[0]
    return np.asarray(pipeline.image_processor.postprocess(pixels, output_type="pil")[0], dtype=np.float32)


if __name__ == "__main__":
    folder, answer = Path(sys.argv[1]), {}
    for kind in (torch.float32, torch.bfloat16):
        flux = FluxPipeline.from_pretrained(folder, dtype=kind)
        flux.set_progress_bar_config(disable=True)
        for scale, told in ((1.0, 3.5), (2.5, 1.0)):
            mine, other = ours(folder, flux, scale=scale, told=told), theirs(flux, kind, scale=scale, told=told)
            apart = np.abs(mine - other)
            name = f"{str(kind).removeprefix('torch.')}, scale {scale:g}"
            answer[name] = {"most": float(apart.max()), "mean": float(apart.mean()), "spread": float(mine.std())}
    sys.stdout.write(json.dumps(answer))
