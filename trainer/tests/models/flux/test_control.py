"""FLUX.1 Canny and Depth: a reference in channels beside the noise, as diffusers' pipeline has it."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image

from oarlock_api.weights import ModelFlavor
from oarlock_trainer.ranks import preload
from oarlock_trainer.runtime.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

preload.settle_environment()
import torch  # noqa: E402 - reads the environment that was just settled
from diffusers import FluxControlPipeline, FluxTransformer2DModel  # noqa: E402 - before anything of ours
from diffusers.models.autoencoders.vae import DiagonalGaussianDistribution  # noqa: E402

from oarlock_trainer.models import folder  # noqa: E402
from oarlock_trainer.models.encoders import PictureEncoder  # noqa: E402
from oarlock_trainer.models.families import family_in  # noqa: E402
from oarlock_trainer.models.family import Reference  # noqa: E402
from oarlock_trainer.models.flux import tiny  # noqa: E402
from oarlock_trainer.models.flux.code import CODE  # noqa: E402
from oarlock_trainer.models.flux.family import FLUX1  # noqa: E402
from oarlock_trainer.models.flux.velocity import pack  # noqa: E402
from oarlock_trainer.plan.parameters import whole  # noqa: E402
from oarlock_trainer.validation.decoding import PictureDecoder  # noqa: E402
from oarlock_trainer.validation.sampling import Guidance, Text, denoise, draw_noise, read_scheduler  # noqa: E402

CPU = torch.device("cpu")
CONTROLLED = [ModelFlavor.CANNY, ModelFlavor.DEPTH]
DEPTH = FLUX1.variants[ModelFlavor.DEPTH]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    written = tmp_path_factory.mktemp("control")
    tiny.write(written, beside=Reference.BESIDE)
    return written


@pytest.fixture(scope="module")
def pipeline(model: Path) -> Any:
    found = FluxControlPipeline.from_pretrained(model, dtype=torch.float32)
    found.set_progress_bar_config(disable=True)
    return found


@pytest.mark.parametrize(("width", "height"), [(64, 48), (32, 64)])
def test_a_picture_is_that_of_the_pipeline(
    pipeline: Any, model: Path, width: int, height: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which takes a sample of what the VAE says of the reference, and here the mean, as ours does."""
    monkeypatch.setattr(DiagonalGaussianDistribution, "sample", lambda found, **_: found.mode())
    pixels = np.random.default_rng(0).integers(0, 256, (1, height, width, 3), dtype=np.uint8)
    noise = draw_noise(7, DEPTH.grid, channels=tiny.LATENT_CHANNELS, width=width, height=height)
    with torch.no_grad():
        sequence, pooled, _ = pipeline.encode_prompt("a boat", "a boat", max_sequence_length=tiny.TEXT_TOKENS)
    wanted = pipeline(
        control_image=Image.fromarray(pixels[0]), prompt="a boat", width=width, height=height, guidance_scale=10.0,
        num_inference_steps=4, latents=pack(noise), output_type="np", max_sequence_length=tiny.TEXT_TOKENS,
    ).images[0]  # fmt: skip
    text = Text(sequence=sequence, pooled=pooled)
    given = PictureEncoder(model, DEPTH, CPU, code=CODE).encode_reference(pixels)
    assert given.shape == (1, Reference.BESIDE.channels(tiny.LATENT_CHANNELS, DEPTH.grid), height // 8, width // 8)
    latents = denoise(
        pipeline.transformer, noise, text, reference=given.float(), family=DEPTH, code=CODE.variants[ModelFlavor.DEPTH],
        guidance=Guidance(told=10.0, scale=1.0, negative=text), scheduler=read_scheduler(model, DEPTH), steps=4,
        go_on=lambda: None,
    )  # fmt: skip
    found = np.asarray(PictureDecoder(model, DEPTH, CPU, code=CODE).decode(latents)[0], dtype=np.float32)
    assert np.abs(found - wanted * 255).max() <= 1.0


@pytest.mark.parametrize("flavor", CONTROLLED)
def test_the_published_model_is_what_is_counted(flavor: ModelFlavor) -> None:
    with torch.device("meta"):
        published = FluxTransformer2DModel(in_channels=128, out_channels=64, guidance_embeds=True)
    shape = FLUX1.variants[flavor].published
    assert shape == FLUX1.architecture(published.config)
    assert whole(shape).trained == sum(one.numel() for one in published.parameters())
    assert (shape.latent_channels, shape.token_channels) == (16, 128)


def test_a_model_s_own_folder_tells_what_it_is_given(model: Path, tiny_flux: Path, tmp_path: Path) -> None:
    assert family_in(model).published == DEPTH.published
    assert family_in(tiny_flux) is FLUX1
    other = tmp_path / "other"
    shutil.copytree(model, other)
    path = other / "transformer" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"in_channels": 4 * tiny.LATENT_CHANNELS + 12}))
    for family in (FLUX1, DEPTH):
        with pytest.raises(
            ConfigurationError, match=r"is of no flavor that is trained here: its tokens have \d+ channels"
        ):
            folder.check(other, family, field="training.model.path")


def test_a_folder_of_another_flavor_is_told_apart_before_anything_is_loaded(model: Path, tiny_flux: Path) -> None:
    folder.check(model, DEPTH, field="training.model.path")
    with pytest.raises(
        ConfigurationError, match=r"a reference beside the noise, not nothing: set model.flavor to Canny or"
    ):
        folder.check(model, FLUX1, field="training.model.path")
    with pytest.raises(ConfigurationError, match=r"not a reference with holes: set model.flavor to Canny or Depth"):
        folder.check(model, FLUX1.variants[ModelFlavor.FILL], field="training.model.path")
    with pytest.raises(
        ConfigurationError, match=r"nothing beside the noise, not a reference: set model.flavor to Dev or"
    ):
        folder.check(tiny_flux, DEPTH, field="training.model.path")
