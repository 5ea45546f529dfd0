"""FLUX.2 with references: their tokens behind the picture's own, as diffusers' pipeline has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from oarlock_local.pytest_tiers import quick_first
from oarlock_trainer.ranks import preload

if TYPE_CHECKING:
    from pathlib import Path

preload.settle_environment()
import torch  # noqa: E402 - reads the environment that was just settled
from diffusers import Flux2KleinPipeline  # noqa: E402 - before ours: a rank imports less of diffusers
from PIL import Image  # noqa: E402

from oarlock_trainer.models.encoders import PictureEncoder  # noqa: E402
from oarlock_trainer.models.flux2 import tiny  # noqa: E402
from oarlock_trainer.models.flux2.code import CODE  # noqa: E402
from oarlock_trainer.models.flux2.family import FLUX2  # noqa: E402
from oarlock_trainer.validation.decoding import PictureDecoder  # noqa: E402
from oarlock_trainer.validation.sampling import Guidance, Text, denoise, draw_noise, read_scheduler  # noqa: E402

CPU = torch.device("cpu")


@pytest.mark.parametrize("scale", quick_first([1.0, 4.0]))
def test_a_picture_is_that_of_the_pipeline(tiny_flux2: Path, scale: float) -> None:
    width, height = 96, 64
    pipeline = Flux2KleinPipeline.from_pretrained(tiny_flux2, dtype=torch.float32)
    pipeline.set_progress_bar_config(disable=True)
    pixels = np.random.default_rng(0).integers(0, 256, (1, height, width, 3), dtype=np.uint8)
    theirs = pipeline(
        image=Image.fromarray(pixels[0]), prompt="make it blue", width=width, height=height, num_inference_steps=4,
        guidance_scale=scale, generator=torch.Generator().manual_seed(7), max_sequence_length=tiny.TEXT_TOKENS,
    ).images[0]  # fmt: skip

    def text(prompt: str) -> Text:
        with torch.no_grad():
            found, _ = pipeline.encode_prompt(prompt, max_sequence_length=tiny.TEXT_TOKENS)
        return Text(sequence=found, pooled=found.new_zeros(1, 0))

    def drawn(reference: torch.Tensor | None) -> torch.Tensor:
        channels = FLUX2.architecture(pipeline.transformer.config).latent_channels
        return denoise(
            pipeline.transformer, draw_noise(7, FLUX2.grid, channels=channels, width=width, height=height),
            text("make it blue"), reference=reference, family=FLUX2, code=CODE,
            guidance=Guidance(told=None, scale=scale, negative=text("")), steps=4, go_on=lambda: None,
            scheduler=read_scheduler(tiny_flux2, FLUX2),
        )  # fmt: skip

    encoder = PictureEncoder(tiny_flux2, FLUX2, CPU, code=CODE)
    latents = drawn(encoder.encode(pixels, None).float())
    found = np.asarray(PictureDecoder(tiny_flux2, FLUX2, CPU, code=CODE).decode(latents)[0], dtype=np.float32)
    distances = np.abs(found - np.asarray(theirs, dtype=np.float32))
    assert distances.mean() < 0.2, "the reference's latents are rounded to bfloat16 here"
    assert not torch.allclose(drawn(None), latents, atol=1e-2)
