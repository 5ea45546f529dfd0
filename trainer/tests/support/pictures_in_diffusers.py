"""Pictures by diffusers' own pipeline, beside those of our denoising loop: same weights, noise, prompt and scheduler.

    python pictures_in_diffusers.py MODEL
    python pictures_in_diffusers.py MODEL --device cuda --kinds bfloat16 --sizes 768x512 512x768 --trained Default

Writes JSON: for each case the largest difference of any value of 0 to 255, and the mean one. With --trained our picture is
made as in a job: by our forward pass, compiled in this mode (None: not at all), after a step of training. A process of its
own, because the pipeline has to be imported before anything of ours.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from diffusers import FluxPipeline

from oarlock_api.engine import Attention, Compile
from oarlock_api.weights import Model, ModelFamily
from oarlock_trainer.models.compute import attention
from oarlock_trainer.models.compute.compiled import compile_blocks
from oarlock_trainer.models.flux import forward
from oarlock_trainer.models.flux.code import CODE
from oarlock_trainer.models.flux.family import FLUX1
from oarlock_trainer.models.flux.velocity import pack
from oarlock_trainer.models.warm_up import Shape, step_on_zeros
from oarlock_trainer.validation.decoding import PictureDecoder
from oarlock_trainer.validation.sampling import Guidance, Text, denoise, draw_noise, read_scheduler

PROMPT, NEGATIVE = "two cats asleep on a red chair", "the surface of the moon"
STEPS, SEED, TEXT_TOKENS = 5, 7, 512
GUIDANCE = ((1.0, 3.5), (2.5, 1.0))
"""Scale of true guidance, and what the guidance embedding is told."""


def ours(model: Path, pipeline: FluxPipeline, size: tuple[int, int], *, scale: float, told: float) -> np.ndarray:
    """The picture of our loop."""
    width, height = size
    device = pipeline.transformer.device

    def text(prompt: str) -> Text:
        with torch.no_grad():
            sequence, pooled, _ = pipeline.encode_prompt(prompt, prompt, max_sequence_length=TEXT_TOKENS)
        return Text(sequence=sequence, pooled=pooled)

    latents = denoise(
        pipeline.transformer,
        noise(pipeline, width, height),
        text(PROMPT),
        family=FLUX1,
        code=CODE,
        guidance=Guidance(told=told, scale=scale, negative=text(NEGATIVE)),
        scheduler=read_scheduler(model, FLUX1),
        steps=STEPS,
        go_on=lambda: None,
    )
    return np.asarray(PictureDecoder(model, FLUX1, device, code=CODE).decode(latents)[0], dtype=np.float32)


def theirs(
    pipeline: FluxPipeline, kind: torch.dtype, size: tuple[int, int], *, scale: float, told: float
) -> np.ndarray:
    """The picture of the pipeline."""
    width, height = size
    latents = pipeline(
        PROMPT,
        negative_prompt=NEGATIVE if scale > 1 else None,
        true_cfg_scale=scale,
        guidance_scale=told,
        width=width,
        height=height,
        num_inference_steps=STEPS,
        latents=pack(noise(pipeline, width, height)).to(kind),
        max_sequence_length=TEXT_TOKENS,
        output_type="latent",
    ).images
    pipeline.vae.float()  # whose rounding is not the loop's
    unpacked = pipeline._unpack_latents(latents.float(), height, width, pipeline.vae_scale_factor)
    scaled = unpacked / pipeline.vae.config.scaling_factor + pipeline.vae.config.shift_factor
    with torch.no_grad():
        pixels = pipeline.vae.decode(scaled, return_dict=False)[0]
    return np.asarray(pipeline.image_processor.postprocess(pixels, output_type="pil")[0], dtype=np.float32)


def noise(pipeline: FluxPipeline, width: int, height: int) -> torch.Tensor:
    """The same for both, on the pipeline's device."""
    drawn = draw_noise(SEED, FLUX1.grid, channels=pipeline.vae.config.latent_channels, width=width, height=height)
    return drawn.to(pipeline.transformer.device)


def train(transformer: Any, mode: str, size: tuple[int, int]) -> None:
    """Our forward pass, compiled in a mode, and a step of training by it: nothing is compiled for pictures alone."""
    device = transformer.device
    kernel = attention.choose(Attention.AUTO, device=device, masked=False)
    forward.install(transformer, attend=attention.attend_with(kernel), recomputed=0)
    compile_blocks(
        FLUX1.blocks_of(transformer),
        Compile.model_validate({"mode": mode}),
        device=device,
        scratch=Path(tempfile.gettempdir()),
    )
    width, height = size
    shape = Shape(height // 8, width // 8, TEXT_TOKENS)
    step_on_zeros(transformer, shape, model=Model(family=ModelFamily.FLUX1, path="/model"), batch_size=1, masked=False)


def _size(text: str) -> tuple[int, int]:
    width, height = map(int, text.split("x"))
    return width, height


def main(options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """All cases, diffusers' pictures before the forward pass becomes ours."""
    answer = {}
    cases = [(size, *guidance) for size in options.sizes for guidance in GUIDANCE]
    for kind in (getattr(torch, name) for name in options.kinds):
        flux = FluxPipeline.from_pretrained(options.model, dtype=kind).to(options.device)
        flux.set_progress_bar_config(disable=True)
        wanted = [theirs(flux, kind, size, scale=scale, told=told) for size, scale, told in cases]
        if options.trained:
            train(flux.transformer, options.trained, options.sizes[0])
        for (size, scale, told), other in zip(cases, wanted, strict=True):
            mine = ours(options.model, flux, size, scale=scale, told=told)
            apart = np.abs(mine - other)
            shape = f", {size[0]}x{size[1]}" if len(options.sizes) > 1 else ""
            name = f"{str(kind).removeprefix('torch.')}, scale {scale:g}{shape}"
            answer[name] = {"most": float(apart.max()), "mean": float(apart.mean()), "spread": float(mine.std())}
    return answer


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--kinds", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--sizes", nargs="+", type=_size, default=[(96, 64)])
    parser.add_argument("--trained", default="", metavar="MODE")
    sys.stdout.write(json.dumps(main(parser.parse_args())))
