"""FLUX.1 Fill: holes of a reference beside the noise, as diffusers' pipeline has it."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image

from oarlock_api.weights import ModelFlavor
from oarlock_trainer.data.buckets import Cut, Size
from oarlock_trainer.ranks import preload
from oarlock_trainer.runtime.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

preload.settle_environment()
import torch  # noqa: E402 - reads the environment that was just settled
from diffusers import FluxFillPipeline, FluxTransformer2DModel  # noqa: E402 - before anything of ours
from diffusers.pipelines.flux import pipeline_flux_fill  # noqa: E402

from oarlock_trainer.models import folder, transformer  # noqa: E402
from oarlock_trainer.models.encoders import PictureEncoder  # noqa: E402
from oarlock_trainer.models.family import Reference  # noqa: E402
from oarlock_trainer.models.flux import tiny  # noqa: E402
from oarlock_trainer.models.flux.code import CODE  # noqa: E402
from oarlock_trainer.models.flux.family import FLUX1  # noqa: E402
from oarlock_trainer.models.flux.velocity import pack, unpack  # noqa: E402
from oarlock_trainer.plan.parameters import whole  # noqa: E402
from oarlock_trainer.preprocess.pictures import decode  # noqa: E402
from oarlock_trainer.validation.decoding import PictureDecoder  # noqa: E402
from oarlock_trainer.validation.sampling import Guidance, Text, denoise, draw_noise, read_scheduler  # noqa: E402

CPU = torch.device("cpu")
FILL = FLUX1.variants[ModelFlavor.FILL]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    written = tmp_path_factory.mktemp("fill")
    tiny.write(written, beside=Reference.HOLES)
    return written


@pytest.fixture(scope="module")
def pipeline(model: Path) -> Any:
    found = FluxFillPipeline.from_pretrained(model, dtype=torch.float32)
    found.set_progress_bar_config(disable=True)
    return found


def with_holes(width: int, height: int, count: int = 1) -> np.ndarray:
    """Half of them is to be filled in, pixel by pixel."""
    return np.random.default_rng(0).integers(0, 256, (count, height, width, 4), dtype=np.uint8)


def in_the_pipeline(pipeline: Any, pixels: np.ndarray) -> torch.Tensor:
    """Tokens of what is left of the pictures, and of the holes; the mean of what the VAE says."""
    count, height, width = pixels.shape[:3]
    given = torch.from_numpy(pixels).permute(0, 3, 1, 2).float()
    mask = (given[:, 3:] < 127.5).float()
    with torch.no_grad():
        left = pipeline.vae.encode((given[:, :3] / 127.5 - 1) * (1 - mask)).latent_dist.mode()
    holes, masked = pipeline.prepare_mask_latents(
        mask, left, count, tiny.LATENT_CHANNELS, 1, height, width, torch.float32, CPU, None
    )
    return torch.cat([masked, holes], dim=-1)


def test_what_is_left_and_what_is_a_hole_are_encoded_as_by_the_pipeline(pipeline: Any, model: Path) -> None:
    pixels = with_holes(48, 32, count=2)
    found = PictureEncoder(model, FILL, CPU, code=CODE).encode_reference(pixels)
    assert found.shape == (2, tiny.LATENT_CHANNELS + 64, 4, 6)
    wanted = in_the_pipeline(pipeline, pixels)
    assert torch.allclose(pack(found.float()), wanted, rtol=2**-7, atol=1e-5)
    assert torch.equal(pack(found.float())[..., 4 * tiny.LATENT_CHANNELS :], wanted[..., 4 * tiny.LATENT_CHANNELS :])


def test_what_is_transparent_is_cut_scaled_and_mirrored_with_its_picture() -> None:
    picture = np.full((32, 64, 4), 255, dtype=np.uint8)
    picture[:, :32, 3] = 0
    content = io.BytesIO()
    Image.fromarray(picture).save(content, format="png")
    cut = Cut(scaled=Size(32, 16), left=8, top=0, target=Size(16, 16))
    found = decode(content.getvalue(), cut, Size(128, 64), any_size=True, holes=True, mirrored=True)
    assert found.shape == (16, 16, 4)
    assert (found[..., 3] < 128).tolist() == [[False] * 8 + [True] * 8] * 16


@pytest.mark.parametrize(("width", "height"), [(64, 48), (32, 64)])
def test_a_picture_is_that_of_the_pipeline(
    pipeline: Any, model: Path, width: int, height: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which takes a sample of what the VAE says of the rest, and here the mean, as ours does."""
    monkeypatch.setattr(pipeline_flux_fill, "retrieve_latents", lambda found, **_: found.latent_dist.mode())
    pixels = with_holes(width, height)
    given, mask = in_the_pipeline(pipeline, pixels), Image.fromarray(np.uint8(255 * (pixels[0, ..., 3] < 128)))
    noise = draw_noise(7, FILL.grid, channels=tiny.LATENT_CHANNELS, width=width, height=height)
    with torch.no_grad():
        sequence, pooled, _ = pipeline.encode_prompt("a boat", "a boat", max_sequence_length=tiny.TEXT_TOKENS)
    wanted = pipeline(
        image=Image.fromarray(pixels[0, ..., :3]), mask_image=mask, prompt="a boat", width=width,
        height=height, guidance_scale=30.0, num_inference_steps=4, latents=pack(noise), output_type="np",
        max_sequence_length=tiny.TEXT_TOKENS,
    ).images[0]  # fmt: skip
    text = Text(sequence=sequence, pooled=pooled)
    latents = denoise(
        pipeline.transformer, noise, text, reference=unpack(given, channels=tiny.LATENT_CHANNELS + 64, height=height // 8,
        width=width // 8), family=FILL, code=CODE.variants[ModelFlavor.FILL],
        guidance=Guidance(told=30.0, scale=1.0, negative=text), scheduler=read_scheduler(model, FILL), steps=4,
        go_on=lambda: None,
    )  # fmt: skip
    found = np.asarray(PictureDecoder(model, FILL, CPU, code=CODE).decode(latents)[0], dtype=np.float32)
    assert np.abs(found - wanted * 255).max() <= 1.0


def test_the_published_model_and_the_one_on_disk_are_what_is_counted(model: Path) -> None:
    with torch.device("meta"):
        published = FluxTransformer2DModel(in_channels=384, out_channels=64, guidance_embeds=True)
    assert FILL.published == FLUX1.architecture(published.config)
    assert whole(FILL.published).trained == sum(one.numel() for one in published.parameters())
    assert (FILL.published.latent_channels, FILL.published.token_channels) == (16, 384)
    one = transformer.load(model)
    assert whole(FLUX1.architecture(one.config)).trained == sum(weight.numel() for weight in one.parameters())


def test_a_folder_of_another_flavor_is_told_apart_before_anything_is_loaded(model: Path, tiny_flux: Path) -> None:
    folder.check(model, FILL, field="training.model.path")
    folder.check(tiny_flux, FLUX1, field="training.model.path")
    with pytest.raises(
        ConfigurationError,
        match=r"given a reference with holes beside the noise, not nothing: set model.flavor to Fill",
    ):
        folder.check(model, FLUX1, field="training.model.path")
    with pytest.raises(
        ConfigurationError, match=r"not a reference with holes: set model.flavor to Dev or Schnell or Krea or Kontext"
    ):
        folder.check(tiny_flux, FILL, field="training.model.path")


def test_a_file_that_cannot_have_holes_is_refused() -> None:
    content = io.BytesIO()
    Image.new("RGB", (16, 16)).save(content, format="png")
    cut = Cut(scaled=Size(16, 16), left=0, top=0, target=Size(16, 16))
    with pytest.raises(ValueError, match="no alpha channel"):
        decode(content.getvalue(), cut, holes=True)
