"""Texts, latents, loss, videos and adapters of Wan, against diffusers' own pipeline."""

from __future__ import annotations

import filecmp
import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from oarlock_api.objective import Loss
from oarlock_api.weights import Lora, Model, ModelFamily, ModelFlavor
from oarlock_trainer.models import folder
from oarlock_trainer.models.families import family_in, family_of
from oarlock_trainer.models.objective import schedule
from oarlock_trainer.ranks import preload
from oarlock_trainer.runtime.errors import ConfigurationError

if TYPE_CHECKING:
    from torch import Tensor

preload.settle_environment()
import torch  # noqa: E402 - reads the environment that was just settled
from diffusers import WanPipeline  # noqa: E402 - before ours: a rank imports less of diffusers
from diffusers.pipelines.wan.pipeline_wan import prompt_clean  # noqa: E402
from flux_pair import distance  # noqa: E402

from oarlock_api.engine import Attention  # noqa: E402
from oarlock_trainer.models import transformer  # noqa: E402
from oarlock_trainer.models.adapters import lora  # noqa: E402
from oarlock_trainer.models.compute.attention import attend_with  # noqa: E402
from oarlock_trainer.models.encoders import PictureEncoder  # noqa: E402
from oarlock_trainer.models.objective import loss  # noqa: E402
from oarlock_trainer.models.wan import tiny  # noqa: E402
from oarlock_trainer.models.wan.captions import CaptionEncoder, cleaned  # noqa: E402
from oarlock_trainer.models.wan.code import CODE  # noqa: E402
from oarlock_trainer.models.wan.family import WAN  # noqa: E402
from oarlock_trainer.models.wan.latents import joined, parted  # noqa: E402
from oarlock_trainer.models.warm_up import Shape, step_on_zeros  # noqa: E402
from oarlock_trainer.validation.decoding import PictureDecoder  # noqa: E402
from oarlock_trainer.validation.sampling import Guidance, Text, denoise, draw_noise, read_scheduler  # noqa: E402

CPU = torch.device("cpu")
CAPTIONS = ["a cat", "the surface of the moon with craters and long shadows, " * 9, ""]
PROMPT, NEGATIVE = "two cats asleep on a red chair", "the surface of the moon"
CHANNELS = tiny.LATENT_CHANNELS
FRAMES = pytest.mark.parametrize("frames", [1, 9], ids=["a picture", "a video"])


def load(model: Path) -> Any:
    found = WanPipeline.from_pretrained(model, dtype=torch.float32)
    found.set_progress_bar_config(disable=True)
    return found


@pytest.fixture(scope="module")
def pipeline(tiny_wan: Path) -> Any:
    return load(tiny_wan)


@pytest.fixture(scope="module")
def installed(tiny_wan: Path) -> Any:
    """The same transformer as jobs load it, which has no positions before our forward pass makes them."""
    model = transformer.load(tiny_wan).float()
    CODE.install(model, attend=attend_with(Attention.SDPA), recomputed=0)
    return model


def test_the_model_of_a_job_has_no_buffers_that_could_not_be_moved(tiny_wan: Path) -> None:
    """diffusers has its positions in such as are not saved: made without memory, they have no values."""
    model = transformer.load(tiny_wan)
    assert not list(model.buffers())
    assert next(model.to("cpu").parameters()).dtype == torch.bfloat16


def texts(pipeline: Any, captions: list[str]) -> Tensor:
    """As the pipeline makes them, with zeros for padding."""
    with torch.no_grad():
        found, _ = pipeline.encode_prompt(
            list(captions), do_classifier_free_guidance=False, max_sequence_length=tiny.TEXT_TOKENS
        )
    return found.clone()


def test_the_tiny_model_is_the_same_every_time(tiny_wan: Path, tmp_path: Path) -> None:
    tiny.write(tmp_path)
    files = [path.relative_to(tiny_wan).as_posix() for path in tiny_wan.rglob("*") if path.is_file()]
    assert len(files) >= 10
    assert filecmp.cmpfiles(tiny_wan, tmp_path, files, shallow=False)[0] == files


def test_captions_are_encoded_as_the_pipeline_encodes_prompts(pipeline: Any, tiny_wan: Path) -> None:
    encoder = CaptionEncoder(tiny_wan, ModelFlavor.T2V1_3B, CPU)
    sequences, pooled, lengths = encoder.encode(CAPTIONS)
    assert sequences.shape == (3, tiny.TEXT_TOKENS, tiny.TEXT_WIDTH)
    assert (encoder.tokens, sequences.dtype, pooled.shape) == (tiny.TEXT_TOKENS, torch.bfloat16, (3, 0))
    torch.testing.assert_close(sequences.float(), texts(pipeline, CAPTIONS), rtol=2**-8, atol=1e-4)
    for sequence, length in zip(sequences, lengths, strict=True):
        assert sequence[:length].any(dim=1).all()
        assert not sequence[length:].any()
    assert 0 < lengths[2] < lengths[0] < lengths[1] == tiny.TEXT_TOKENS
    found = WAN.read_encoded(tiny_wan, ModelFlavor.T2V14B)
    assert (found.tokens, found.width) == sequences.shape[1:]
    assert (found.pooled, found.channels, found.factor) == (0, CHANNELS, 8)


@pytest.mark.parametrize(
    "caption", ["a  cat\n\tand a dog ", "cats &amp; dogs", "&amp;lt;b&amp;gt; of a\u00a0kind", "ﬁne “quotes”", ""]
)
def test_captions_are_cleaned_as_the_pipeline_cleans_prompts_without_ftfy(
    caption: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("diffusers.pipelines.wan.pipeline_wan.is_ftfy_available", lambda: False)
    assert cleaned(caption) == prompt_clean(caption)


def test_weights_that_stay_in_the_nodes_memory_encode_the_same(tiny_wan: Path) -> None:
    streamed = CaptionEncoder(tiny_wan, ModelFlavor.T2V1_3B, CPU, streamed=True)
    plain = CaptionEncoder(tiny_wan, ModelFlavor.T2V1_3B, CPU)
    assert torch.equal(streamed.encode(CAPTIONS)[0], plain.encode(CAPTIONS)[0])
    assert {weight.device.type for weight in streamed._encoder.parameters()} == {"meta"}


@FRAMES
def test_latents_are_the_mean_normalised_by_channel(pipeline: Any, tiny_wan: Path, frames: int) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (2, frames, 32, 48, 3), dtype=np.uint8)
    latents = PictureEncoder(tiny_wan, WAN, CPU, code=CODE).encode(pixels, [5, 6])
    assert latents.shape == (2, CHANNELS * WAN.grid.latent_frames(frames), 4, 6)
    vae = pipeline.vae
    with torch.no_grad():
        given = torch.from_numpy(pixels).permute(0, 4, 1, 2, 3).float() / 127.5 - 1
        wanted = vae.encode(given).latent_dist.mode()
    # The pipeline's own way back.
    mean, deviation = (
        torch.tensor(one).view(1, -1, 1, 1, 1) for one in (vae.config.latents_mean, vae.config.latents_std)
    )
    assert distance(parted(latents.float(), CHANNELS) * deviation + mean, wanted) < 2**-8


def test_a_picture_is_a_video_of_one_frame(tiny_wan: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (2, 32, 48, 3), dtype=np.uint8)
    encoder = PictureEncoder(tiny_wan, WAN, CPU, code=CODE)
    assert torch.equal(encoder.encode(pixels, None), encoder.encode(pixels[:, None], None))


def test_frames_of_a_channel_follow_each_other_outside_of_the_family() -> None:
    video = torch.arange(2 * 3 * 4 * 5 * 6).view(2, 3, 4, 5, 6)
    assert torch.equal(joined(video)[0, :4], video[0, 0])
    assert torch.equal(parted(joined(video), 3), video)


def batch(frames: int, lengths: tuple[int, ...] | None = None) -> loss.MicroBatch:
    """A micro-batch as a rank makes it, of so many latent frames."""
    source = torch.Generator().manual_seed(1)
    shape = (2, CHANNELS * frames, 6, 8)
    return loss.MicroBatch(
        latents=torch.randn(shape, generator=source), noise=torch.randn(shape, generator=source),
        text=torch.randn(2, max(lengths or (9,)), tiny.TEXT_WIDTH, generator=source), pooled=torch.zeros(2, 0),
        sigmas=torch.tensor([0.2, 0.9]), guidance=torch.ones(2),
        text_mask=torch.tensor(lengths)[:, None] > torch.arange(max(lengths)) if lengths else None,
    )  # fmt: skip


@pytest.mark.parametrize("frames", [1, 3])
def test_the_loss_and_its_gradients_are_flow_matching_on_what_the_pipelines_model_predicts(
    pipeline: Any, installed: Any, frames: int
) -> None:
    given, theirs = batch(frames), pipeline.transformer
    installed.zero_grad(set_to_none=True)
    theirs.zero_grad(set_to_none=True)
    found = loss.flow_matching_loss(installed, given, velocity=CODE.velocity, has_guidance=False, measure=Loss.MSE)
    found.backward()
    sigmas = given.sigmas.view(-1, 1, 1, 1)
    noisy = (1.0 - sigmas) * given.latents + sigmas * given.noise
    predicted = theirs(
        hidden_states=noisy.view(2, CHANNELS, frames, 6, 8), timestep=1000 * given.sigmas,
        encoder_hidden_states=given.text, return_dict=False,
    )[0]  # fmt: skip
    target = (given.noise - given.latents).view(predicted.shape)
    expected = ((predicted - target) ** 2).flatten(1).mean(1).mean()
    expected.backward()
    assert found.item() == pytest.approx(expected.item(), rel=1e-5)
    for (name, mine), other in zip(installed.named_parameters(), theirs.parameters(), strict=True):
        assert (mine.grad - other.grad).norm() <= 1e-5 * other.grad.norm(), name


def test_what_is_masked_has_no_influence(installed: Any) -> None:
    given = batch(2, (9, 4))
    changed = given.text.clone()
    changed[1, 4:] += 100.0
    with torch.no_grad():
        one, other = (
            CODE.velocity(
                installed, given.latents, given.sigmas, text=text, pooled=given.pooled, text_mask=given.text_mask,
                guidance=None,
            )
            for text in (given.text, changed)
        )  # fmt: skip
    assert torch.equal(one, other)


def test_padding_that_is_not_masked_is_seen_as_zeros(pipeline: Any, installed: Any, tiny_wan: Path) -> None:
    """So the model was trained: what a job caches without a mask has its full length."""
    (caption, *_), _, (length, *_) = CaptionEncoder(tiny_wan, ModelFlavor.T2V1_3B, CPU).encode(["a cat"])
    given = batch(1)

    def predicted(model: Any, text: Tensor) -> Tensor:
        both = text.float()[None].expand(2, -1, -1)
        return CODE.velocity(
            model, given.latents, given.sigmas, text=both, pooled=given.pooled, text_mask=None, guidance=None
        )

    with torch.no_grad():
        whole = predicted(installed, caption)
        wanted = predicted(pipeline.transformer, texts(pipeline, ["a cat"])[0])
        assert distance(whole, wanted) < 0.01
        assert distance(predicted(installed, caption[:length]), whole) > 0.01


def test_a_step_on_zeros_goes_back_through_every_block(tiny_wan: Path) -> None:
    model: Any = transformer.load(tiny_wan)
    CODE.install(model, attend=attend_with(Attention.SDPA), recomputed=sys.maxsize)
    calls = []
    for number, block in enumerate(WAN.blocks_of(model)):
        block.register_forward_pre_hook(lambda *_, number=number: calls.append(number))
    job = Model(family=ModelFamily.WAN, path=str(tiny_wan))
    step_on_zeros(model, Shape(8, 12, 32), model=job, batch_size=2, masked=True)
    assert calls == [0, 1, 2, 2, 1, 0]
    assert all(one.grad is None for one in model.parameters())


def test_the_automatic_shift_is_the_schedulers(pipeline: Any) -> None:
    for tokens in (16, 4096, 32_760):
        assert schedule.automatic_shift(tokens, WAN.shift) == pipeline.scheduler.config.flow_shift


@pytest.mark.parametrize("scale", [1.0, 5.0])
@FRAMES
def test_a_video_is_that_of_the_pipeline_with_the_same_seed_and_guidance(
    pipeline: Any, installed: Any, tiny_wan: Path, scale: float, frames: int
) -> None:
    """UniPC remembers earlier steps: a second video is made of nothing but its own."""
    width, height, steps, seed = 96, 64, 6, 7
    expected = pipeline(
        PROMPT, negative_prompt=NEGATIVE, width=width, height=height, num_frames=frames, num_inference_steps=steps,
        guidance_scale=scale, generator=torch.Generator().manual_seed(seed), max_sequence_length=tiny.TEXT_TOKENS,
        output_type="pil",
    ).frames[0]  # fmt: skip
    prompt, negative = (
        Text(sequence=text[None], pooled=torch.zeros(1, 0)) for text in texts(pipeline, [PROMPT, NEGATIVE])
    )
    scheduler = read_scheduler(tiny_wan, WAN)

    def drawn() -> np.ndarray:
        latents = denoise(
            installed,
            draw_noise(seed, WAN.grid, channels=CHANNELS, width=width, height=height, frames=frames),
            prompt,
            family=WAN,
            code=CODE,
            guidance=Guidance(told=None, scale=scale, negative=negative),
            scheduler=scheduler,
            steps=steps,
            go_on=lambda: None,
        )
        decoded = PictureDecoder(tiny_wan, WAN, CPU, code=CODE).decode(latents)
        return np.stack([np.asarray(one, dtype=np.float32) for one in decoded])

    found, again = drawn(), drawn()
    apart = np.abs(found - np.stack([np.asarray(one, dtype=np.float32) for one in expected]))
    assert found.shape == (frames, height, width, 3)
    assert apart.max() <= 1.0
    assert apart.mean() < 0.001
    assert found.std() > 10.0  # it is no even surface, of which any loop would make the same
    assert np.array_equal(found, again)


def test_a_scheduler_of_another_kind_is_refused(pipeline: Any) -> None:
    other = type(pipeline.scheduler)()
    with pytest.raises(ValueError, match="none of UniPC for flow matching"):
        CODE.set_noise_levels(other, 4, 24)


def test_adapters_that_were_saved_are_loaded_by_the_pipeline(tiny_wan: Path, tmp_path: Path) -> None:
    settings = Lora(rank=4, alpha=8)
    trained = load(tiny_wan).transformer
    lora.add_adapters(trained, settings, WAN.presets, seed=0)
    torch.manual_seed(3)
    for name, parameter in trained.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.2)
    factors = {name: value for name, value in trained.named_parameters() if value.requires_grad}
    lora.save(factors, settings, tmp_path)
    theirs, given = load(tiny_wan), batch(2)

    def predicted(model: Any) -> Tensor:
        return CODE.velocity(
            model, given.latents, given.sigmas, text=given.text, pooled=given.pooled, text_mask=None, guidance=None
        )

    with torch.no_grad():
        base = predicted(theirs.transformer)
        theirs.load_lora_weights(tmp_path)
        loaded, wanted = predicted(theirs.transformer), predicted(trained)
    assert distance(loaded, wanted) < 1e-5
    assert distance(loaded, base) > 0.01


def test_a_flavor_is_a_size_of_one_family(tiny_wan: Path) -> None:
    small, large = (family_of(Model(family=ModelFamily.WAN, flavor=one, path="/m")) for one in WAN.flavors)
    assert (small.published.width, large.published.width) == (1536, 5120)
    assert family_in(tiny_wan) is WAN
    folder.check(tiny_wan, large, field="training.model.path")


@pytest.mark.parametrize(
    ("index", "words"),
    [
        (
            {"transformer_2": ["diffusers", "WanTransformer3DModel"]},
            "has transformer_2: it is Wan 2.2 of two transformers",
        ),
        ({"expand_timesteps": True}, "has expand_timesteps: it is Wan 2.2 of 5 billion parameters"),
    ],
)
def test_another_wan_with_the_same_transformer_is_refused_by_its_pipeline(
    tiny_wan: Path, tmp_path: Path, index: dict[str, Any], words: str
) -> None:
    other = shutil.copytree(tiny_wan, tmp_path / "other")
    path = other / "model_index.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | index))
    with pytest.raises(ConfigurationError, match=words):
        folder.check(other, WAN, field="training.model.path")
