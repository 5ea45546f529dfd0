"""FLUX.2's encoders, loss and pictures, against diffusers' own pipeline."""

from __future__ import annotations

import filecmp
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from oarlock_api.objective import Loss
from oarlock_api.weights import ModelFlavor
from oarlock_trainer.data.cache_keys import encoder_fingerprint, fingerprints
from oarlock_trainer.models.objective import schedule
from oarlock_trainer.ranks import preload
from oarlock_trainer.runtime.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

preload.settle_environment()
import torch  # noqa: E402 - reads the environment that was just settled
from diffusers import Flux2KleinPipeline  # noqa: E402 - before ours: a rank imports less of diffusers
from diffusers.pipelines.flux2.pipeline_flux2_klein import compute_empirical_mu  # noqa: E402
from PIL import Image  # noqa: E402

from oarlock_trainer.models.encoders import PictureEncoder  # noqa: E402
from oarlock_trainer.models.flux2 import tiny  # noqa: E402
from oarlock_trainer.models.flux2.captions import CaptionEncoder  # noqa: E402
from oarlock_trainer.models.flux2.code import CODE  # noqa: E402
from oarlock_trainer.models.flux2.family import FLUX2  # noqa: E402
from oarlock_trainer.models.flux2.language_models import QWEN3  # noqa: E402
from oarlock_trainer.models.flux2.shift import TRAINED, shift_exponent  # noqa: E402
from oarlock_trainer.models.flux2.velocity import image_ids, text_ids, velocity  # noqa: E402
from oarlock_trainer.models.objective import loss  # noqa: E402
from oarlock_trainer.validation.decoding import PictureDecoder  # noqa: E402
from oarlock_trainer.validation.sampling import Guidance, Text, denoise, draw_noise, read_scheduler  # noqa: E402

CPU = torch.device("cpu")
KLEIN = ModelFlavor.KLEIN_BASE_4B
CAPTIONS = ["a cat", "the surface of the moon with craters and long shadows", "", "very long " * 40]
SEED, STEPS, WIDTH, HEIGHT = 7, 4, 96, 64


@pytest.fixture(scope="module")
def pipeline(tiny_flux2: Path) -> Any:
    found = Flux2KleinPipeline.from_pretrained(tiny_flux2, dtype=torch.float32)
    found.set_progress_bar_config(disable=True)
    return found


def test_the_tiny_model_is_the_same_every_time(tiny_flux2: Path, tmp_path: Path) -> None:
    tiny.write(tmp_path)
    files = [path.relative_to(tiny_flux2).as_posix() for path in tiny_flux2.rglob("*") if path.is_file()]
    assert len(files) >= 11
    assert filecmp.cmpfiles(tiny_flux2, tmp_path, files, shallow=False)[0] == files


def test_its_command_says_in_one_line_what_it_wrote(tiny_flux2: Path) -> None:
    said = (tiny_flux2.parent / "tiny-flux2.said").read_text()
    assert said == f"wrote a FLUX.2 model with tiny random weights to {tiny_flux2}\n"


@pytest.mark.parametrize("streamed", [False, True])
def test_captions_are_encoded_as_the_pipeline_encodes_prompts(
    pipeline: Any, tiny_flux2: Path, *, streamed: bool
) -> None:
    encoder = CaptionEncoder(tiny_flux2, KLEIN, CPU, streamed=streamed)
    texts, pooled, lengths = encoder.encode(CAPTIONS)
    with torch.inference_mode():
        expected, _ = pipeline.encode_prompt(CAPTIONS, max_sequence_length=tiny.TEXT_TOKENS)
    assert torch.equal(texts, expected.to(torch.bfloat16))
    assert pooled.shape == (len(CAPTIONS), 0)
    assert lengths[2] < lengths[0] < lengths[1] < lengths[3] == tiny.TEXT_TOKENS == encoder.tokens
    homes = {weight.device.type for weight in encoder._network.parameters()}
    assert homes == {"meta" if streamed else "cpu"}


def test_what_encoders_make_is_as_large_as_their_configurations_say(tiny_flux2: Path, tmp_path: Path) -> None:
    found = FLUX2.read_encoded(tiny_flux2, KLEIN)
    latents = PictureEncoder(tiny_flux2, FLUX2, CPU, code=CODE).encode(np.zeros((1, 32, 48, 3), np.uint8), [0])
    texts, pooled, _ = CaptionEncoder(tiny_flux2, KLEIN, CPU).encode(["a cat"])
    assert latents.shape == (1, found.channels, 32 // found.factor, 48 // found.factor)
    assert (texts.shape[1:], pooled.shape[1]) == ((found.tokens, found.width), found.pooled)
    assert FLUX2.read_encoded(tmp_path, KLEIN) == FLUX2.encoded
    assert FLUX2.read_encoded(tmp_path, ModelFlavor.KLEIN_9B) == FLUX2.variants[ModelFlavor.KLEIN_9B].encoded


def test_what_is_cached_is_told_from_what_another_family_makes_of_the_same_encoders(tiny_flux2: Path) -> None:
    """Other families take other layers of the same Qwen3."""
    mine, other = (fingerprints(tiny_flux2, family) for family in (FLUX2, replace(FLUX2, cache_mark="")))
    assert (mine.vae, mine.text) == (
        encoder_fingerprint([tiny_flux2 / "vae"], "flux2"),
        encoder_fingerprint([tiny_flux2 / "text_encoder", tiny_flux2 / "tokenizer"], "flux2"),
    )
    assert mine.vae != other.vae
    assert mine.text != other.text


def test_a_text_encoder_with_too_few_layers_is_refused(tiny_flux2: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = replace(QWEN3, layers=(9, 18, 29))
    monkeypatch.setattr("oarlock_trainer.models.flux2.captions.language_model", lambda _: changed)
    with pytest.raises(ConfigurationError, match="has 28 layers, of which the 29th is asked"):
        CaptionEncoder(tiny_flux2, KLEIN, CPU)


def test_latents_are_those_that_the_pipeline_makes_of_a_picture(pipeline: Any, tiny_flux2: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (2, 32, 48, 3), dtype=np.uint8)
    found = PictureEncoder(tiny_flux2, FLUX2, CPU, code=CODE).encode(pixels, [5, 6])
    shown = [Image.fromarray(one) for one in pixels]
    with torch.no_grad():
        expected = torch.cat(
            [
                pipeline._encode_vae_image(pipeline.image_processor.preprocess(one, height=32, width=48), None)
                for one in shown
            ]
        )
    assert found.shape == (2, 4 * tiny.LATENT_CHANNELS, 2, 3)
    assert torch.allclose(found.float(), expected, atol=0.01)


def test_places_of_latents_and_text_are_the_pipelines(pipeline: Any) -> None:
    assert torch.equal(image_ids(3, 5, CPU), pipeline._prepare_latent_ids(torch.zeros(1, 1, 3, 5))[0].float())
    assert torch.equal(text_ids(7, CPU), pipeline._prepare_text_ids(torch.zeros(1, 7, 1))[0].float())


def batch(**fields: Any) -> loss.MicroBatch:
    generator = torch.Generator().manual_seed(1)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator)

    values: dict[str, Any] = {
        "latents": random(2, 16, 3, 4), "noise": random(2, 16, 3, 4), "text": random(2, 9, 48),
        "pooled": random(2, 0), "sigmas": torch.tensor([0.2, 0.9]), "guidance": torch.tensor([1.0, 3.5]),
        "text_mask": None,
    }  # fmt: skip
    return loss.MicroBatch(**values | fields)


def flow_matching(model: Any, given: loss.MicroBatch) -> torch.Tensor:
    return loss.flow_matching_loss(model, given, velocity=velocity, has_guidance=False, measure=Loss.MSE)


def test_the_loss_is_flow_matching_as_diffusers_writes_it(pipeline: Any) -> None:
    given = batch()
    with torch.no_grad():
        found = flow_matching(pipeline.transformer, given)
        sigmas = given.sigmas.view(-1, 1, 1, 1)
        noisy = (1.0 - sigmas) * given.latents + sigmas * given.noise
        ids = pipeline._prepare_latent_ids(noisy)
        predicted = pipeline.transformer(
            hidden_states=pipeline._pack_latents(noisy), timestep=given.sigmas, guidance=None, img_ids=ids,
            encoder_hidden_states=given.text, txt_ids=pipeline._prepare_text_ids(given.text), return_dict=False,
        )[0]  # fmt: skip
        predicted = pipeline._unpack_latents_with_ids(predicted, ids, 3, 4)
        expected = ((predicted - (given.noise - given.latents)) ** 2).mean()
    assert found == pytest.approx(float(expected), rel=1e-5)


def test_a_masked_text_token_has_no_influence(pipeline: Any) -> None:
    mask = torch.ones(2, 9, dtype=torch.bool)
    mask[:, 7:] = False
    one = batch(text_mask=mask)
    changed = one.text.clone()
    changed[:, 7:] += 100.0
    with torch.no_grad():
        losses = [
            float(flow_matching(pipeline.transformer, given)) for given in (one, batch(text_mask=mask, text=changed))
        ]
        assert losses[0] == pytest.approx(losses[1], rel=1e-6)
        assert losses[0] != pytest.approx(float(flow_matching(pipeline.transformer, batch())), rel=1e-6)


@pytest.mark.parametrize("scale", [1.0, 4.0])
def test_our_picture_is_that_of_the_pipeline_with_the_same_seed(
    pipeline: Any, tiny_flux2: Path, *, scale: float
) -> None:
    theirs = pipeline(
        prompt="two cats", width=WIDTH, height=HEIGHT, num_inference_steps=STEPS, guidance_scale=scale,
        generator=torch.Generator().manual_seed(SEED), max_sequence_length=tiny.TEXT_TOKENS,
    ).images[0]  # fmt: skip

    def text(prompt: str) -> Text:
        with torch.no_grad():
            found, _ = pipeline.encode_prompt(prompt, max_sequence_length=tiny.TEXT_TOKENS)
        return Text(sequence=found, pooled=found.new_zeros(1, 0))

    channels = FLUX2.architecture(pipeline.transformer.config).latent_channels
    latents = denoise(
        pipeline.transformer,
        draw_noise(SEED, FLUX2.grid, channels=channels, width=WIDTH, height=HEIGHT),
        text("two cats"),
        family=FLUX2,
        code=CODE,
        guidance=Guidance(told=None, scale=scale, negative=text("")),
        scheduler=read_scheduler(tiny_flux2, FLUX2),
        steps=STEPS,
        go_on=lambda: None,
    )
    ours = PictureDecoder(tiny_flux2, FLUX2, CPU, code=CODE).decode(latents)[0]
    mine, other = (np.asarray(one, dtype=np.float32) for one in (ours, theirs))
    assert np.abs(mine - other).max() <= 1.0
    assert np.abs(mine - other).mean() < 0.001
    assert mine.std() > 10.0


def test_noise_levels_are_shifted_as_the_pipeline_shifts_them() -> None:
    for tokens in (16, 256, 4096, 4300, 4301, 16_384):
        for steps in (4, 28, 50):
            assert shift_exponent(tokens, steps) == pytest.approx(compute_empirical_mu(tokens, steps))
    for tokens in (256, 1024, 4096):
        expected = math.exp(compute_empirical_mu(tokens, 50))
        assert schedule.automatic_shift(tokens, TRAINED) == pytest.approx(expected)
