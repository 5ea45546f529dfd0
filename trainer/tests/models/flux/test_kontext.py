"""FLUX.1 Kontext: a reference's tokens behind the picture's own, as diffusers' pipeline has it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from oarlock_trainer.ranks import preload

preload.settle_environment()
import torch  # noqa: E402 - reads the environment that was just settled
from diffusers import FluxKontextPipeline  # noqa: E402 - before anything of ours
from flux_pair import POOLED, TEXT_WIDTH, distance, pair, worst  # noqa: E402

from oarlock_api.engine import Attention  # noqa: E402
from oarlock_api.objective import Loss  # noqa: E402
from oarlock_trainer.models.compute.attention import attend_with  # noqa: E402
from oarlock_trainer.models.encoders import PictureEncoder  # noqa: E402
from oarlock_trainer.models.flux import forward  # noqa: E402
from oarlock_trainer.models.flux.code import CODE  # noqa: E402
from oarlock_trainer.models.flux.family import FLUX1  # noqa: E402
from oarlock_trainer.models.flux.velocity import pack, unpack, velocity  # noqa: E402
from oarlock_trainer.models.objective.loss import MicroBatch, sample_losses  # noqa: E402
from oarlock_trainer.validation.decoding import PictureDecoder  # noqa: E402
from oarlock_trainer.validation.sampling import Guidance, Text, denoise, draw_noise, read_scheduler  # noqa: E402

FLOAT32 = 1e-5
"""Relative distance in float32: of the prediction, and of each parameter's gradient."""
CPU = torch.device("cpu")
TEXT = 9
Given = dict[str, torch.Tensor]


def given(size: int, latents: tuple[int, int], reference: tuple[int, int]) -> Given:
    generator = torch.Generator().manual_seed(1)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(size, *shape, generator=generator)

    return {
        "noisy": random(4, *latents), "reference": random(4, *reference), "text": random(TEXT, TEXT_WIDTH),
        "pooled": random(POOLED), "sigmas": torch.linspace(0.25, 0.5, size), "guidance": torch.full((size,), 2.5),
        "target": random(4, *latents),
    }  # fmt: skip


def in_diffusers(model: Any, one: Given, *, masked: bool) -> torch.Tensor:
    """What the pipeline asks the model and takes of its answer, by its own helpers for ids."""
    ids = FluxKontextPipeline._prepare_latent_image_ids
    own, behind = (
        ids(1, one[name].shape[2] // 2, one[name].shape[3] // 2, CPU, torch.float32) for name in ("noisy", "reference")
    )
    behind[..., 0] = 1
    tokens = torch.cat([pack(one["noisy"]), pack(one["reference"])], dim=1)
    mask = torch.ones(len(tokens), 1, 1, TEXT + tokens.shape[1], dtype=torch.bool)
    mask[..., TEXT - 3 : TEXT] = False
    found = model(
        hidden_states=tokens, encoder_hidden_states=one["text"], pooled_projections=one["pooled"], timestep=one["sigmas"],
        guidance=one["guidance"], img_ids=torch.cat([own, behind], dim=0), txt_ids=torch.zeros(TEXT, 3),
        joint_attention_kwargs={"attention_mask": mask} if masked else None, return_dict=False,
    )[0]  # fmt: skip
    height, width = one["noisy"].shape[2:]
    return unpack(found[:, : height * width // 4], channels=4, height=height, width=width)


def in_ours(model: Any, one: Given, *, masked: bool) -> torch.Tensor:
    text_mask = torch.ones(len(one["text"]), TEXT, dtype=torch.bool)
    text_mask[:, TEXT - 3 :] = False
    return velocity(
        model, one["noisy"], one["sigmas"], text=one["text"], pooled=one["pooled"],
        text_mask=text_mask if masked else None, guidance=one["guidance"], reference=one["reference"],
    )  # fmt: skip


def gradients(model: Any, prediction: torch.Tensor, target: torch.Tensor) -> dict[str, torch.Tensor]:
    model.zero_grad(set_to_none=True)
    (prediction - target).square().mean().backward()
    return {name: one.grad for name, one in model.named_parameters() if one.grad is not None}


@pytest.mark.parametrize("masked", [False, True], ids=["", "masked"])
@pytest.mark.parametrize("reference", [(8, 12), (4, 8)], ids=["same size", "smaller"])
@pytest.mark.parametrize("recomputed", [0, 4])
def test_prediction_and_gradients_are_those_of_diffusers(
    *, reference: tuple[int, int], masked: bool, recomputed: int
) -> None:
    theirs, mine = pair()
    forward.install(mine, attend=attend_with(Attention.SDPA), recomputed=recomputed)
    one = given(2, (8, 12), reference)
    wanted, found = in_diffusers(theirs, one, masked=masked), in_ours(mine, one, masked=masked)
    assert found.shape == one["noisy"].shape
    assert distance(found, wanted) < FLOAT32
    assert worst(gradients(mine, found, one["target"]), gradients(theirs, wanted, one["target"])) < FLOAT32


def test_a_reference_changes_the_prediction_and_its_own_tokens_are_not_judged() -> None:
    _, mine = pair()
    forward.install(mine, attend=attend_with(Attention.SDPA))
    one = given(2, (8, 12), (8, 12))
    batch = MicroBatch(
        latents=one["target"], noise=one["noisy"], text=one["text"], pooled=one["pooled"], sigmas=one["sigmas"],
        guidance=one["guidance"], text_mask=None, reference=one["reference"],
    )  # fmt: skip

    def losses(reference: torch.Tensor | None) -> torch.Tensor:
        facts = {name: getattr(batch, name) for name in batch.__slots__} | {"reference": reference}
        return sample_losses(mine, MicroBatch(**facts), velocity=velocity, has_guidance=True, measure=Loss.MSE).detach()

    own = losses(one["reference"])
    assert own.shape == (2,)
    assert not torch.equal(own, losses(None))
    assert not torch.equal(own, losses(one["reference"].flip(0)))


def test_a_reference_is_the_mean_of_what_the_vae_says(tiny_flux: Path) -> None:
    pipeline = FluxKontextPipeline.from_pretrained(tiny_flux)
    pixels = np.random.default_rng(0).integers(0, 256, (2, 32, 48, 3), dtype=np.uint8)
    found = PictureEncoder(tiny_flux, FLUX1, CPU, code=CODE).encode(pixels, None)
    given = torch.from_numpy(pixels).permute(0, 3, 1, 2) / 127.5 - 1
    with torch.no_grad():
        wanted = pipeline._encode_vae_image(given, torch.Generator())
    assert torch.allclose(found.float(), wanted, rtol=2**-7, atol=1e-5)


@pytest.mark.parametrize(("width", "height"), [(64, 48), (32, 64)])
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
