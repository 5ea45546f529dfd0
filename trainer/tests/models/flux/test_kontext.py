"""FLUX.1 Kontext: a reference's tokens behind the picture's own, as diffusers' pipeline has it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from oarlock_local.pytest_tiers import quick_first
from oarlock_trainer.ranks import preload

preload.settle_environment()
import torch  # noqa: E402 - reads the environment that was just settled
from diffusers import FluxKontextPipeline  # noqa: E402 - before anything of ours

from oarlock_trainer.models.encoders import PictureEncoder  # noqa: E402
from oarlock_trainer.models.flux.code import CODE  # noqa: E402
from oarlock_trainer.models.flux.family import FLUX1  # noqa: E402
from oarlock_trainer.models.flux.velocity import pack  # noqa: E402
from oarlock_trainer.validation.decoding import PictureDecoder  # noqa: E402
from oarlock_trainer.validation.sampling import Guidance, Text, denoise, draw_noise, read_scheduler  # noqa: E402

CPU = torch.device("cpu")


def test_a_reference_is_the_mean_of_what_the_vae_says(tiny_flux: Path) -> None:
    pipeline = FluxKontextPipeline.from_pretrained(tiny_flux)
    pixels = np.random.default_rng(0).integers(0, 256, (2, 32, 48, 3), dtype=np.uint8)
    found = PictureEncoder(tiny_flux, FLUX1, CPU, code=CODE).encode(pixels, None)
    given = torch.from_numpy(pixels).permute(0, 3, 1, 2) / 127.5 - 1
    with torch.no_grad():
        wanted = pipeline._encode_vae_image(given, torch.Generator())
    assert torch.allclose(found.float(), wanted, rtol=2**-7, atol=1e-5)


@pytest.mark.parametrize(("width", "height"), quick_first([(64, 48), (32, 64)]))
def test_a_picture_is_that_of_the_pipeline(tiny_flux: Path, width: int, height: int) -> None:
    pipeline = FluxKontextPipeline.from_pretrained(tiny_flux)
    pipeline.set_progress_bar_config(disable=True)
    drawn = Image.fromarray(np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8))
    noise = draw_noise(7, FLUX1.grid, channels=pipeline.transformer.config.in_channels // 4, width=width, height=height)
    reference = pipeline._encode_vae_image(
        torch.from_numpy(np.asarray(drawn)).permute(2, 0, 1)[None] / 127.5 - 1, torch.Generator()
    ).detach()
    with torch.no_grad():
        sequence, pooled, _ = pipeline.encode_prompt("make it blue", "make it blue", max_sequence_length=512)
    wanted = pipeline(
        image=drawn, prompt="make it blue", width=width, height=height, max_area=width * height, guidance_scale=2.5,
        num_inference_steps=4, latents=pack(noise), output_type="np", _auto_resize=False,
    ).images[0]  # fmt: skip
    text = Text(sequence=sequence, pooled=pooled)
    latents = denoise(
        pipeline.transformer, noise, text, reference=reference, family=FLUX1, code=CODE,
        guidance=Guidance(told=2.5, scale=1.0, negative=text), scheduler=read_scheduler(tiny_flux, FLUX1), steps=4,
        go_on=lambda: None,
    )  # fmt: skip
    found = np.asarray(PictureDecoder(tiny_flux, FLUX1, CPU, code=CODE).decode(latents)[0], dtype=np.float32)
    assert np.abs(found - wanted * 255).max() <= 1.0
    bare = denoise(
        pipeline.transformer, noise, text, family=FLUX1, code=CODE, guidance=Guidance(told=2.5, scale=1.0, negative=text),
        scheduler=read_scheduler(tiny_flux, FLUX1), steps=4, go_on=lambda: None,
    )  # fmt: skip
    assert not torch.allclose(bare, latents, atol=1e-3)
