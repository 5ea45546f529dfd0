"""Texts, latents, loss, pictures and adapters of Z-Image, against diffusers' own pipeline."""

from __future__ import annotations

import filecmp
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from oarlock_api.objective import Loss
from oarlock_api.weights import Lora, Model, ModelFamily, ModelFlavor
from oarlock_trainer.models.objective import schedule
from oarlock_trainer.ranks import preload

if TYPE_CHECKING:
    from torch import Tensor

preload.settle_environment()
import torch  # noqa: E402 - reads the environment that was just settled
from diffusers import ZImagePipeline  # noqa: E402 - before ours: a rank imports less of diffusers
from diffusers.pipelines.z_image.pipeline_z_image import calculate_shift  # noqa: E402

from oarlock_api.engine import Attention  # noqa: E402
from oarlock_trainer.models.adapters import lora  # noqa: E402
from oarlock_trainer.models.compute.attention import attend_with  # noqa: E402
from oarlock_trainer.models.encoders import PictureEncoder  # noqa: E402
from oarlock_trainer.models.objective import loss  # noqa: E402
from oarlock_trainer.models.warm_up import Shape, step_on_zeros  # noqa: E402
from oarlock_trainer.models.zimage import tiny  # noqa: E402
from oarlock_trainer.models.zimage.captions import CaptionEncoder  # noqa: E402
from oarlock_trainer.models.zimage.code import CODE  # noqa: E402
from oarlock_trainer.models.zimage.family import Z_IMAGE  # noqa: E402
from oarlock_trainer.validation.decoding import PictureDecoder  # noqa: E402
from oarlock_trainer.validation.sampling import Guidance, Text, denoise, draw_noise, read_scheduler  # noqa: E402

CPU = torch.device("cpu")
CAPTIONS = ["a cat", "the surface of the moon with craters and shadows, seen through a window in the rain", ""]
PROMPT, NEGATIVE = "two cats on a red chair", "the surface of the moon"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tiny-z-image")
    tiny.write(directory)
    return directory


def load(model: Path) -> Any:
    found = ZImagePipeline.from_pretrained(model, dtype=torch.float32)
    found.set_progress_bar_config(disable=True)
    return found


@pytest.fixture(scope="module")
def pipeline(model: Path) -> Any:
    return load(model)


@pytest.fixture(scope="module")
def installed(model: Path) -> Any:
    """The same transformer with our forward pass."""
    transformer = load(model).transformer
    CODE.install(transformer, attend=attend_with(Attention.SDPA), recomputed=0)
    return transformer


def texts(pipeline: Any, captions: list[str]) -> list[Tensor]:
    # As the encoder does: with gradients some processors take other kernels, which round otherwise.
    with torch.inference_mode():
        found: list[Tensor] = pipeline.encode_prompt(list(captions), max_sequence_length=tiny.TEXT_TOKENS)[0]
    return [text.clone() for text in found]


def test_the_tiny_model_is_the_same_every_time(model: Path, tmp_path: Path) -> None:
    tiny.write(tmp_path)
    files = [path.relative_to(model).as_posix() for path in model.rglob("*") if path.is_file()]
    assert len(files) >= 11
    assert filecmp.cmpfiles(model, tmp_path, files, shallow=False)[0] == files


def test_captions_are_encoded_as_the_pipeline_encodes_prompts(pipeline: Any, model: Path) -> None:
    encoder = CaptionEncoder(model, ModelFlavor.BASE, CPU)
    sequences, pooled, lengths = encoder.encode(CAPTIONS)
    assert sequences.shape == (3, encoder.tokens, tiny.TEXT_WIDTH)
    assert pooled.shape == (3, 0)
    for sequence, length, expected in zip(sequences, lengths, texts(pipeline, CAPTIONS), strict=True):
        assert torch.equal(sequence[:length], expected.to(torch.bfloat16))
    assert lengths[2] < lengths[0] < lengths[1] <= tiny.TEXT_TOKENS


def test_a_streamed_encoder_encodes_the_same(model: Path) -> None:
    streamed = CaptionEncoder(model, ModelFlavor.BASE, CPU, streamed=True)
    plain = CaptionEncoder(model, ModelFlavor.BASE, CPU)
    assert torch.equal(streamed.encode(CAPTIONS)[0], plain.encode(CAPTIONS)[0])


def test_latents_are_shifted_and_scaled_as_the_pipeline_expects_them(pipeline: Any, model: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (1, 32, 48, 3), dtype=np.uint8)
    latents = PictureEncoder(model, Z_IMAGE, CPU, code=CODE).encode(pixels, [5])
    vae = pipeline.vae
    with torch.no_grad():
        distribution = vae.encode(torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 127.5 - 1).latent_dist
    noise = torch.randn(4, 4, 6, generator=torch.Generator().manual_seed(5))
    # The pipeline's own way back: latents / scaling_factor + shift_factor.
    found = latents.float() / vae.config.scaling_factor + vae.config.shift_factor
    assert torch.allclose(found, distribution.mean + distribution.std * noise, atol=0.03)


def batch(lengths: tuple[int, ...] = (9, 40)) -> tuple[loss.MicroBatch, list[Tensor]]:
    """A micro-batch as a rank makes it, and its texts without padding."""
    source = torch.Generator().manual_seed(1)
    own = [torch.randn(length, tiny.TEXT_WIDTH, generator=source) for length in lengths]
    size = len(lengths)
    made = loss.MicroBatch(
        latents=torch.randn(size, 4, 6, 8, generator=source), noise=torch.randn(size, 4, 6, 8, generator=source),
        text=torch.nn.utils.rnn.pad_sequence(own, batch_first=True), pooled=torch.zeros(size, 0),
        sigmas=torch.linspace(0.2, 0.9, size), guidance=torch.ones(size),
        text_mask=torch.tensor(lengths)[:, None] > torch.arange(max(lengths)),
    )  # fmt: skip
    return made, own


@pytest.mark.parametrize("lengths", [(9, 40), (2,), (33, 33, 1)])
def test_the_loss_and_its_gradients_are_flow_matching_on_what_the_pipeline_predicts(
    pipeline: Any, installed: Any, lengths: tuple[int, ...]
) -> None:
    """It is told 1 - sigma, looks from the noise to the picture, and sees each caption at its own length."""
    given, own = batch(lengths)
    theirs = pipeline.transformer
    installed.zero_grad(set_to_none=True)
    theirs.zero_grad(set_to_none=True)
    found = loss.flow_matching_loss(installed, given, velocity=CODE.velocity, has_guidance=False, measure=Loss.MSE)
    found.backward()
    sigmas = given.sigmas.view(-1, 1, 1, 1)
    noisy = (1.0 - sigmas) * given.latents + sigmas * given.noise
    predicted = theirs(list(noisy.unsqueeze(2)), (1000 - given.sigmas * 1000) / 1000, own, return_dict=False)[0]
    expected = ((-torch.stack(predicted).squeeze(2) - (given.noise - given.latents)) ** 2).flatten(1).mean(1).mean()
    expected.backward()
    assert found.item() == pytest.approx(expected.item(), rel=1e-5)
    for (name, mine), other in zip(installed.named_parameters(), theirs.parameters(), strict=True):
        if other.grad is not None:
            assert (mine.grad - other.grad).norm() <= 1e-5 * other.grad.norm(), name


def test_what_stands_for_padding_has_no_influence(installed: Any) -> None:
    given, _ = batch()
    changed = given.text.clone()
    changed[0, 9:] += 100.0
    with torch.no_grad():
        one, other = (
            CODE.velocity(
                installed, given.latents, given.sigmas, text=text, pooled=given.pooled, text_mask=given.text_mask,
                guidance=None,
            )
            for text in (given.text, changed)
        )  # fmt: skip
    assert torch.equal(one, other)


@pytest.mark.parametrize("side", [8, 16], ids=["padded", "nothing is padded"])
def test_a_step_on_zeros_goes_back_through_every_block(model: Path, side: int) -> None:
    """Also where no token stands for padding, whose own parameter is the model's first one then."""
    transformer = load(model).transformer
    CODE.install(transformer, attend=attend_with(Attention.SDPA), recomputed=sys.maxsize)
    calls = []
    for number, block in enumerate(Z_IMAGE.blocks_of(transformer)):
        block.register_forward_pre_hook(lambda *_, number=number: calls.append(number))
    job = Model(family=ModelFamily.Z_IMAGE, path=str(model))
    step_on_zeros(transformer, Shape(side, side, 32), model=job, batch_size=2, masked=True)
    number = len(Z_IMAGE.blocks_of(transformer))
    assert sorted(calls) == sorted([*range(number)] * 2)
    assert all(one.grad is None for one in transformer.parameters())


def test_the_automatic_shift_is_the_pipelines() -> None:
    for tokens in (16, 256, 1024, 4096):
        assert schedule.automatic_shift(tokens, Z_IMAGE.shift) == pytest.approx(math.exp(calculate_shift(tokens)))


@pytest.mark.parametrize("guidance", [0.0, 3.0])
def test_a_picture_is_that_of_the_pipeline_with_the_same_seed(
    pipeline: Any, installed: Any, model: Path, guidance: float
) -> None:
    width, height, steps, seed = 96, 64, 4, 7
    expected = pipeline(
        PROMPT, negative_prompt=NEGATIVE, width=width, height=height, num_inference_steps=steps, guidance_scale=guidance,
        generator=torch.Generator().manual_seed(seed), max_sequence_length=tiny.TEXT_TOKENS, output_type="pil",
    ).images[0]  # fmt: skip
    prompt, negative = (
        Text(sequence=text[None], pooled=torch.zeros(1, 0)) for text in texts(pipeline, [PROMPT, NEGATIVE])
    )
    latents = denoise(
        installed,
        draw_noise(seed, Z_IMAGE.grid, channels=4, width=width, height=height),
        prompt,
        family=Z_IMAGE,
        code=CODE,
        guidance=Guidance(told=None, scale=guidance - Z_IMAGE.unguided + 1.0, negative=negative),
        scheduler=read_scheduler(model, Z_IMAGE),
        steps=steps,
        go_on=lambda: None,
    )
    found = np.asarray(PictureDecoder(model, Z_IMAGE, CPU, code=CODE).decode(latents)[0], dtype=np.float32)
    apart = np.abs(found - np.asarray(expected, dtype=np.float32))
    assert apart.max() <= 1.0
    assert apart.mean() < 0.001
    assert found.std() > 10.0  # it is no even surface, of which any loop would make the same


def test_adapters_that_were_saved_are_loaded_by_the_pipeline(model: Path, tmp_path: Path) -> None:
    settings = Lora(rank=4, alpha=8)
    trained = load(model).transformer
    lora.add_adapters(trained, settings, Z_IMAGE.presets, seed=0)
    torch.manual_seed(3)
    for name, parameter in trained.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.2)
    factors = {name: value for name, value in trained.named_parameters() if value.requires_grad}
    lora.save(factors, settings, tmp_path)
    theirs = load(model)
    given, own = batch()
    arguments = (list(given.latents.unsqueeze(2)), given.sigmas, own)
    with torch.no_grad():
        base = torch.stack(theirs.transformer(*arguments, return_dict=False)[0])
        theirs.load_lora_weights(tmp_path)
        loaded = torch.stack(theirs.transformer(*arguments, return_dict=False)[0])
        wanted = torch.stack(trained(*arguments, return_dict=False)[0])
    assert (loaded - wanted).norm() < 1e-5 * wanted.norm()
    assert (loaded - base).norm() > 0.01 * base.norm()
