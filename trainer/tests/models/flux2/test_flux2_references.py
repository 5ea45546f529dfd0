"""FLUX.2 with references: their tokens behind the picture's own, as diffusers' pipeline has it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from oarlock_trainer.ranks import preload

if TYPE_CHECKING:
    from pathlib import Path

preload.settle_environment()
import torch  # noqa: E402 - reads the environment that was just settled
from diffusers import Flux2KleinPipeline  # noqa: E402 - before ours: a rank imports less of diffusers
from flux2_pair import CHANNELS, TEXT, TEXT_WIDTH, ours, pair  # noqa: E402
from flux_pair import distance, worst  # noqa: E402
from PIL import Image  # noqa: E402

from oarlock_trainer.models.encoders import PictureEncoder  # noqa: E402
from oarlock_trainer.models.flux2 import tiny  # noqa: E402
from oarlock_trainer.models.flux2.code import CODE  # noqa: E402
from oarlock_trainer.models.flux2.family import FLUX2  # noqa: E402
from oarlock_trainer.models.flux2.velocity import velocity  # noqa: E402
from oarlock_trainer.validation.decoding import PictureDecoder  # noqa: E402
from oarlock_trainer.validation.sampling import Guidance, Text, denoise, draw_noise, read_scheduler  # noqa: E402

CPU = torch.device("cpu")
FLOAT32 = 1e-5
"""Relative distance in float32: of the prediction, and of each parameter's gradient."""
Given = dict[str, torch.Tensor]


def given(reference: tuple[int, int]) -> Given:
    generator = torch.Generator().manual_seed(1)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(2, *shape, generator=generator)

    return {
        "noisy": random(CHANNELS, 4, 6), "reference": random(CHANNELS, *reference), "text": random(TEXT, TEXT_WIDTH),
        "sigmas": torch.tensor([0.25, 0.5]), "target": random(CHANNELS, 4, 6),
    }  # fmt: skip


def in_diffusers(model: Any, one: Given) -> torch.Tensor:
    """What the pipeline asks the model and takes of its answer, by its own helpers."""
    pack, own = Flux2KleinPipeline._pack_latents, Flux2KleinPipeline._prepare_latent_ids(one["noisy"])[0]
    behind = Flux2KleinPipeline._prepare_image_ids([one["reference"][:1]])[0]
    found = model(
        hidden_states=torch.cat([pack(one["noisy"]), pack(one["reference"])], dim=1),
        encoder_hidden_states=one["text"], timestep=one["sigmas"], guidance=None, return_dict=False,
        img_ids=torch.cat([own, behind]), txt_ids=Flux2KleinPipeline._prepare_text_ids(one["text"])[0],
    )[0]  # fmt: skip
    return found[:, : 4 * 6].transpose(1, 2).reshape_as(one["noisy"])


def in_ours(model: Any, one: Given) -> torch.Tensor:
    return velocity(
        model, one["noisy"], one["sigmas"], text=one["text"], pooled=torch.zeros(2, 0), text_mask=None, guidance=None,
        reference=one["reference"],
    )  # fmt: skip


def gradients(model: Any, prediction: torch.Tensor, target: torch.Tensor) -> dict[str, torch.Tensor]:
    model.zero_grad(set_to_none=True)
    (prediction - target).square().mean().backward()
    return {name: one.grad for name, one in model.named_parameters() if one.grad is not None}


@pytest.mark.parametrize("reference", [(4, 6), (3, 5)], ids=["same size", "smaller"])
@pytest.mark.parametrize("recomputed", [0, 5])
def test_prediction_and_gradients_are_those_of_diffusers(reference: tuple[int, int], recomputed: int) -> None:
    theirs, mine = pair()
    ours(mine, recomputed=recomputed)
    one = given(reference)
    wanted, found = in_diffusers(theirs, one), in_ours(mine, one)
    assert distance(found, wanted) < FLOAT32
    assert worst(gradients(mine, found, one["target"]), gradients(theirs, wanted, one["target"])) < FLOAT32


@pytest.mark.parametrize("scale", [1.0, 4.0])
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
