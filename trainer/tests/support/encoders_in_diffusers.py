"""What diffusers' own pipeline makes of captions and pictures, beside what our encoders and our decoder make of them.

    python encoders_in_diffusers.py DEVICE MODEL...

Writes JSON, of each model: relative distances of T5's sequences, CLIP's vectors and latents, and how far a decoded
picture is apart on average, in steps of 0 to 255. A process of its own, because the pipeline has to be imported before
anything of ours.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import torch
from diffusers import FluxPipeline
from PIL import Image

from oarlock_api.weights import ModelFlavor
from oarlock_trainer.models.encoders import PictureEncoder
from oarlock_trainer.models.flux.captions import CaptionEncoder
from oarlock_trainer.models.flux.code import CODE
from oarlock_trainer.models.flux.family import FLUX1
from oarlock_trainer.validation.decoding import PictureDecoder

CAPTIONS = (
    "",
    "two cats asleep on a red chair beside the window",
    'a sign that says "Öffnungszeiten", 3 o\'clock; ' + "craters and long shadows, " * 120,
)
WIDTH, HEIGHT, SEED = 256, 384, 7


def distance(found: torch.Tensor, wanted: torch.Tensor) -> float:
    """Relative distance, in the Euclidean norm."""
    found, wanted = found.detach().float().cpu(), wanted.detach().float().cpu()
    return float((found - wanted).norm() / wanted.norm())


def picture() -> np.ndarray:
    """(HEIGHT, WIDTH, 3) uint8: smooth colours, edges and noise."""
    source = np.random.default_rng(0)
    down, across = np.mgrid[0:HEIGHT, 0:WIDTH]
    smooth = np.stack([down * 255 / HEIGHT, across * 255 / WIDTH, (down + across) % 256], axis=-1)
    smooth[100:200, 50:150] = 240
    return np.clip(smooth + source.normal(0, 8, smooth.shape), 0, 255).astype(np.uint8)


@torch.no_grad()
def captions(pipeline: FluxPipeline, model: Path, device: torch.device) -> dict[str, float]:
    """Each encoder's distance."""
    encoder = CaptionEncoder(model, ModelFlavor.DEV, device)
    sequence, pooled, _ = encoder.encode(CAPTIONS)
    theirs, their_pooled, _ = pipeline.encode_prompt(
        list(CAPTIONS), list(CAPTIONS), device=device, max_sequence_length=encoder.tokens
    )
    return {"t5": distance(sequence, theirs), "clip": distance(pooled, their_pooled)}


@torch.no_grad()
def pictures(pipeline: FluxPipeline, model: Path, device: torch.device) -> dict[str, float]:
    """The VAE's distances, there and back."""
    pixels = picture()
    ours = PictureEncoder(model, FLUX1, device, code=CODE).encode(pixels[None], [SEED])
    vae = pipeline.vae
    prepared = pipeline.image_processor.preprocess(Image.fromarray(pixels)).to(device, vae.dtype)
    found = vae.encode(prepared).latent_dist
    noise = torch.randn(found.mean.shape[1:], generator=torch.Generator().manual_seed(SEED)).to(device)
    sampled = found.mean.float() + found.std.float() * noise
    theirs = (sampled - vae.config.shift_factor) * vae.config.scaling_factor
    scaled = theirs / vae.config.scaling_factor + vae.config.shift_factor
    decoded = vae.decode(scaled.to(vae.dtype), return_dict=False)[0]
    shown = np.asarray(pipeline.image_processor.postprocess(decoded.float(), output_type="pil")[0], dtype=np.float32)
    mine = np.asarray(PictureDecoder(model, FLUX1, device, code=CODE).decode(theirs.float())[0], dtype=np.float32)
    return {
        "latents": distance(ours, theirs),
        "picture": float(np.abs(mine - shown).mean()),
        "spread": float(shown.std()),
    }


if __name__ == "__main__":
    gpu = torch.device(sys.argv[1])
    # The type that ours compute in there; the transformer is not needed.
    kind = torch.bfloat16 if gpu.type == "cuda" else torch.float32
    found = []
    for folder in map(Path, sys.argv[2:]):
        flux = FluxPipeline.from_pretrained(folder, transformer=None, dtype=kind).to(gpu)
        found.append(captions(flux, folder, gpu) | pictures(flux, folder, gpu))
    sys.stdout.write(json.dumps(found))
