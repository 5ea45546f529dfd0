"""The objective and the encoders, against diffusers' own pipeline."""

from __future__ import annotations

import filecmp
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from oarlock_api.objective import Loss
from oarlock_api.weights import ModelFlavor
from oarlock_trainer.models.objective import schedule
from oarlock_trainer.ranks import preload

if TYPE_CHECKING:
    from torch import Tensor

preload.settle_environment()
import torch  # noqa: E402 - reads the environment that was just settled
from diffusers import FluxPipeline  # noqa: E402 - before ours: a rank imports less of diffusers
from diffusers.pipelines.flux.pipeline_flux import calculate_shift  # noqa: E402

from oarlock_trainer.models.encoders import PictureEncoder, normalized  # noqa: E402
from oarlock_trainer.models.flux import tiny  # noqa: E402
from oarlock_trainer.models.flux.captions import CaptionEncoder  # noqa: E402
from oarlock_trainer.models.flux.code import CODE  # noqa: E402
from oarlock_trainer.models.flux.family import FLUX1  # noqa: E402
from oarlock_trainer.models.flux.velocity import image_ids, pack, velocity  # noqa: E402
from oarlock_trainer.models.objective import loss  # noqa: E402

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def pipeline(tiny_flux: Path) -> Any:
    return FluxPipeline.from_pretrained(tiny_flux, dtype=torch.float32)


def test_the_tiny_model_is_the_same_every_time(tiny_flux: Path, tmp_path: Path) -> None:
    tiny.write(tmp_path)
    files = [path.relative_to(tiny_flux).as_posix() for path in tiny_flux.rglob("*") if path.is_file()]
    assert len(files) >= 14
    assert filecmp.cmpfiles(tiny_flux, tmp_path, files, shallow=False)[0] == files


def test_the_tiny_model_draws_a_picture_through_diffusers(pipeline: Any) -> None:
    picture = pipeline("a cat", height=64, width=48, num_inference_steps=1, max_sequence_length=32).images[0]
    assert picture.size == (48, 64)


def test_packing_and_image_ids_are_those_of_the_pipeline(pipeline: Any) -> None:
    latents = torch.randn(2, 4, 6, 10)
    assert torch.equal(pack(latents), pipeline._pack_latents(latents, 2, 4, 6, 10))
    expected = pipeline._prepare_latent_image_ids(2, 3, 5, CPU, torch.float32)
    assert torch.equal(image_ids(6, 10, CPU), expected)


def test_captions_are_encoded_as_the_pipeline_encodes_prompts(pipeline: Any, tiny_flux: Path) -> None:
    captions = ["a cat", "the surface of the moon with craters and long shadows", ""]
    sequences, pooled, lengths = CaptionEncoder(tiny_flux, ModelFlavor.DEV, CPU).encode(captions)
    # As the encoder does: with gradients some processors take other kernels, which round otherwise.
    with torch.inference_mode():
        expected, expected_pooled, _ = pipeline.encode_prompt(captions, None, max_sequence_length=tiny.TEXT_TOKENS)
    assert torch.equal(sequences, expected.to(torch.bfloat16))
    assert torch.equal(pooled, expected_pooled.to(torch.bfloat16))
    assert lengths[0] < lengths[1] <= tiny.TEXT_TOKENS
    assert lengths[2] == 1  # the end token


def test_weights_that_stay_in_the_nodes_memory_encode_the_same_and_leave_the_device_again(tiny_flux: Path) -> None:
    captions = ["a cat", "the surface of the moon with craters and long shadows"]
    streamed = CaptionEncoder(tiny_flux, ModelFlavor.DEV, CPU, streamed=True)
    for found, expected in zip(
        streamed.encode(captions), CaptionEncoder(tiny_flux, ModelFlavor.DEV, CPU).encode(captions), strict=True
    ):
        assert found == expected if isinstance(found, list) else torch.equal(found, expected)
    assert {weight.device.type for weight in streamed._t5.parameters()} == {"meta"}


def test_streamed_weights_leave_training_the_memory_that_the_allocator_keeps(
    tiny_flux: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from accelerate.utils import modeling  # noqa: PLC0415 - its import takes seconds

    streamed, cleared = CaptionEncoder(tiny_flux, ModelFlavor.DEV, CPU, streamed=True), []
    monkeypatch.setattr(modeling, "clear_device_cache", lambda: cleared.append(True))
    streamed.encode(["a cat"])
    assert not cleared


def test_latents_are_the_distributions_sample_shifted_and_scaled(pipeline: Any, tiny_flux: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (2, 32, 48, 3), dtype=np.uint8)
    encoder = PictureEncoder(tiny_flux, FLUX1, CPU, code=CODE)
    latents = encoder.encode(pixels, [5, 6])
    vae = pipeline.vae
    with torch.no_grad():
        picture = torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 127.5 - 1
        distribution = vae.encode(picture).latent_dist
    noise = torch.stack([torch.randn(4, 4, 6, generator=torch.Generator().manual_seed(seed)) for seed in (5, 6)])
    expected = (distribution.mean + distribution.std * noise - 0.1159) * 0.3611
    assert latents.shape == (2, 4, 4, 6)
    assert torch.allclose(latents.float(), expected, atol=0.01)
    assert torch.equal(latents, encoder.encode(pixels, [5, 6]))


def test_bfloat16_moves_a_pixel_by_a_quarter_of_a_grey_level_at_most(tiny_flux: Path) -> None:
    """What the VAE is given on a GPU, in all 256 levels; rounded twice, it was off by half a level."""
    levels = np.arange(256, dtype=np.uint8)
    exact = torch.from_numpy(levels).double() / 127.5 - 1.0
    given = normalized(torch.from_numpy(levels), torch.bfloat16)
    assert float((given.double() - exact).abs().max()) * 127.5 <= 0.25
    encoder, seen = PictureEncoder(tiny_flux, FLUX1, CPU, code=CODE), list[Any]()
    encoder._dtype = torch.bfloat16
    encoder._vae.to(torch.bfloat16).encoder.register_forward_pre_hook(lambda _module, inputs: seen.append(inputs[0]))
    encoder.encode(np.repeat(levels, 3).reshape(1, 16, 16, 3), [0])
    assert torch.equal(seen[0][0, 0].flatten(), given)


def batch(**fields: Any) -> loss.MicroBatch:
    generator = torch.Generator().manual_seed(1)

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator)

    values: dict[str, Any] = {
        "latents": random(2, 4, 6, 8), "noise": random(2, 4, 6, 8), "text": random(2, 9, 32), "pooled": random(2, 32),
        "sigmas": torch.tensor([0.2, 0.9]), "guidance": torch.tensor([1.0, 3.5]), "text_mask": None,
    }  # fmt: skip
    return loss.MicroBatch(**values | fields)


def test_the_loss_is_flow_matching_as_diffusers_writes_it(pipeline: Any) -> None:
    """noise - x0 is the target, x_t = (1 - sigma) x0 + sigma noise, mean squared error in float32."""
    given = batch()
    with torch.no_grad():
        found = loss.flow_matching_loss(
            pipeline.transformer, given, velocity=velocity, has_guidance=True, measure=Loss.MSE
        )
        sigmas = given.sigmas.view(-1, 1, 1, 1)
        noisy = (1.0 - sigmas) * given.latents + sigmas * given.noise
        predicted = pipeline.transformer(
            hidden_states=pipeline._pack_latents(noisy, 2, 4, 6, 8), timestep=given.sigmas, guidance=given.guidance,
            pooled_projections=given.pooled, encoder_hidden_states=given.text, txt_ids=torch.zeros(9, 3),
            img_ids=pipeline._prepare_latent_image_ids(2, 3, 4, CPU, torch.float32), return_dict=False,
        )[0]  # fmt: skip
        predicted = pipeline._unpack_latents(predicted, 6 * 8, 8 * 8, 8)
        expected = ((predicted - (given.noise - given.latents)) ** 2).reshape(2, -1).mean(1).mean()
    assert found == pytest.approx(float(expected), rel=1e-5)


def test_a_masked_text_token_has_no_influence(pipeline: Any) -> None:
    mask = torch.ones(2, 9, dtype=torch.bool)
    mask[:, 7:] = False
    one = batch(text_mask=mask)
    changed = one.text.clone()
    changed[:, 7:] += 100.0
    other = batch(text_mask=mask, text=changed)
    with torch.no_grad():
        losses = [
            loss.flow_matching_loss(pipeline.transformer, given, velocity=velocity, has_guidance=True, measure=Loss.MSE)
            for given in (one, other)
        ]
    assert float(losses[0]) == pytest.approx(float(losses[1]), rel=1e-6)


def test_the_automatic_shift_is_the_pipelines() -> None:
    for tokens in (16, 256, 1024, 4096):
        assert schedule.automatic_shift(tokens, FLUX1.shift) == pytest.approx(math.exp(calculate_shift(tokens)))
