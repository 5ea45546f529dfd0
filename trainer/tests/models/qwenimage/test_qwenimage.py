"""Texts, latents, loss, pictures and adapters of Qwen-Image, against diffusers' own pipeline."""

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
from diffusers import QwenImagePipeline  # noqa: E402 - before ours: a rank imports less of diffusers
from diffusers.pipelines.qwenimage.pipeline_qwenimage import calculate_shift  # noqa: E402
from flux_pair import distance  # noqa: E402

from oarlock_api.engine import Attention  # noqa: E402
from oarlock_trainer.models import transformer  # noqa: E402
from oarlock_trainer.models.adapters import lora  # noqa: E402
from oarlock_trainer.models.compute.attention import attend_with  # noqa: E402
from oarlock_trainer.models.encoders import PictureEncoder  # noqa: E402
from oarlock_trainer.models.objective import loss  # noqa: E402
from oarlock_trainer.models.qwenimage import tiny  # noqa: E402
from oarlock_trainer.models.qwenimage.captions import BEFORE, CaptionEncoder  # noqa: E402
from oarlock_trainer.models.qwenimage.code import CODE  # noqa: E402
from oarlock_trainer.models.qwenimage.encoded import DROPPED  # noqa: E402
from oarlock_trainer.models.qwenimage.family import QWEN_IMAGE  # noqa: E402
from oarlock_trainer.models.warm_up import Shape, step_on_zeros  # noqa: E402
from oarlock_trainer.validation.decoding import PictureDecoder  # noqa: E402
from oarlock_trainer.validation.sampling import Guidance, Text, denoise, draw_noise, read_scheduler  # noqa: E402

CPU = torch.device("cpu")
CAPTIONS = ["a cat", "the surface of the moon with craters and long shadows, " * 9, ""]
PROMPT, NEGATIVE = "two cats asleep on a red chair", "the surface of the moon"


def load(model: Path) -> Any:
    found = QwenImagePipeline.from_pretrained(model, dtype=torch.float32)
    found.set_progress_bar_config(disable=True)
    return found


@pytest.fixture(scope="module")
def pipeline(tiny_qwen_image: Path) -> Any:
    return load(tiny_qwen_image)


@pytest.fixture(scope="module")
def installed(tiny_qwen_image: Path) -> Any:
    """The same transformer as jobs load it, which has no positions before our forward pass makes them."""
    model = transformer.load(tiny_qwen_image).float()
    CODE.install(model, attend=attend_with(Attention.SDPA), recomputed=0)
    return model


def texts(pipeline: Any, captions: list[str]) -> list[Tensor]:
    """Each without padding, as the pipeline makes them."""
    # As the encoder does: with gradients some processors take other kernels, which round otherwise.
    with torch.inference_mode():
        found, mask = pipeline.encode_prompt(list(captions), max_sequence_length=tiny.TEXT_TOKENS)
    lengths = [found.shape[1]] * len(found) if mask is None else mask.sum(dim=1).tolist()
    return [text[:length].clone() for text, length in zip(found, lengths, strict=True)]


def test_the_tiny_model_is_the_same_every_time(tiny_qwen_image: Path, tmp_path: Path) -> None:
    tiny.write(tmp_path)
    files = [path.relative_to(tiny_qwen_image).as_posix() for path in tiny_qwen_image.rglob("*") if path.is_file()]
    assert len(files) >= 11
    assert filecmp.cmpfiles(tiny_qwen_image, tmp_path, files, shallow=False)[0] == files


def test_as_many_tokens_stand_before_a_caption_as_are_dropped(pipeline: Any) -> None:
    assert pipeline.prompt_template_encode.partition("{}")[0] == BEFORE
    assert len(pipeline.tokenizer(BEFORE).input_ids) == DROPPED == pipeline.prompt_template_encode_start_idx


def test_captions_are_encoded_as_the_pipeline_encodes_prompts(pipeline: Any, tiny_qwen_image: Path) -> None:
    encoder = CaptionEncoder(tiny_qwen_image, ModelFlavor.V1, CPU)
    sequences, pooled, lengths = encoder.encode(CAPTIONS)
    assert sequences.shape == (3, tiny.TEXT_TOKENS, tiny.TEXT_WIDTH)
    assert (encoder.tokens, sequences.dtype, pooled.shape) == (tiny.TEXT_TOKENS, torch.bfloat16, (3, 0))
    for sequence, length, expected in zip(sequences, lengths, texts(pipeline, CAPTIONS), strict=True):
        assert length == len(expected)
        torch.testing.assert_close(sequence[:length].float(), expected, rtol=2**-8, atol=1e-4)
    assert 0 < lengths[2] < lengths[0] < lengths[1] == tiny.TEXT_TOKENS
    found = QWEN_IMAGE.read_encoded(tiny_qwen_image, ModelFlavor.V2512)
    assert (found.tokens, found.width) == sequences.shape[1:]
    assert (found.pooled, found.channels, found.factor) == (0, tiny.LATENT_CHANNELS, 8)


def test_a_caption_alone_is_encoded_as_beside_longer_ones(tiny_qwen_image: Path) -> None:
    encoder = CaptionEncoder(tiny_qwen_image, ModelFlavor.V1, CPU)
    (beside, *_), _, (length, *_) = encoder.encode(CAPTIONS)
    (alone,), _, lengths = encoder.encode(CAPTIONS[:1])
    assert lengths == [length]
    torch.testing.assert_close(alone[:length].float(), beside[:length].float(), rtol=2**-8, atol=1e-4)
    assert not alone[length:].any()


def test_weights_that_stay_in_the_nodes_memory_encode_the_same(tiny_qwen_image: Path) -> None:
    streamed = CaptionEncoder(tiny_qwen_image, ModelFlavor.V1, CPU, streamed=True)
    plain = CaptionEncoder(tiny_qwen_image, ModelFlavor.V1, CPU)
    assert torch.equal(streamed.encode(CAPTIONS)[0], plain.encode(CAPTIONS)[0])
    assert {weight.device.type for weight in streamed._network.parameters()} == {"meta"}
    assert not any("visual" in name for name, _ in plain._network.named_parameters())


def test_latents_are_the_distributions_sample_normalised_by_channel(pipeline: Any, tiny_qwen_image: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (2, 32, 48, 3), dtype=np.uint8)
    latents = PictureEncoder(tiny_qwen_image, QWEN_IMAGE, CPU, code=CODE).encode(pixels, [5, 6])
    vae = pipeline.vae
    with torch.no_grad():
        given = torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 127.5 - 1
        distribution = vae.encode(given.unsqueeze(2)).latent_dist
    noise = torch.stack([torch.randn(4, 4, 6, generator=torch.Generator().manual_seed(seed)) for seed in (5, 6)])
    wanted = (distribution.mean + distribution.std * noise.unsqueeze(2)).squeeze(2)
    # The pipeline's own way back.
    mean, deviation = (torch.tensor(one).view(1, -1, 1, 1) for one in (vae.config.latents_mean, vae.config.latents_std))
    assert distance(latents.float() * deviation + mean, wanted) < 2**-8


def batch(lengths: tuple[int, ...]) -> loss.MicroBatch:
    """A micro-batch as a rank makes it."""
    source = torch.Generator().manual_seed(1)
    size = len(lengths)
    return loss.MicroBatch(
        latents=torch.randn(size, 4, 6, 8, generator=source), noise=torch.randn(size, 4, 6, 8, generator=source),
        text=torch.randn(size, max(lengths), tiny.TEXT_WIDTH, generator=source), pooled=torch.zeros(size, 0),
        sigmas=torch.linspace(0.2, 0.9, size), guidance=torch.ones(size),
        text_mask=torch.tensor(lengths)[:, None] > torch.arange(max(lengths)),
    )  # fmt: skip


@pytest.mark.parametrize("lengths", [(9, 40), (2,), (33, 33, 1)])
def test_the_loss_and_its_gradients_are_flow_matching_on_what_the_pipeline_predicts(
    pipeline: Any, installed: Any, lengths: tuple[int, ...]
) -> None:
    given, theirs = batch(lengths), pipeline.transformer
    installed.zero_grad(set_to_none=True)
    theirs.zero_grad(set_to_none=True)
    found = loss.flow_matching_loss(installed, given, velocity=CODE.velocity, has_guidance=False, measure=Loss.MSE)
    found.backward()
    sigmas = given.sigmas.view(-1, 1, 1, 1)
    noisy = (1.0 - sigmas) * given.latents + sigmas * given.noise
    tokens = theirs(
        hidden_states=pipeline._pack_latents(noisy, len(lengths), 4, 6, 8), timestep=given.sigmas,
        encoder_hidden_states=given.text, encoder_hidden_states_mask=given.text_mask,
        img_shapes=[[(1, 3, 4)]] * len(lengths), return_dict=False,
    )[0]  # fmt: skip
    predicted = pipeline._unpack_latents(tokens, 48, 64, 8).squeeze(2)
    expected = ((predicted - (given.noise - given.latents)) ** 2).flatten(1).mean(1).mean()
    expected.backward()
    assert found.item() == pytest.approx(expected.item(), rel=1e-5)
    for (name, mine), other in zip(installed.named_parameters(), theirs.parameters(), strict=True):
        if other.grad is None:  # of what the last block makes of the text, which nobody asks
            assert "transformer_blocks.2" in name
            assert not mine.grad.any()
        else:
            assert (mine.grad - other.grad).norm() <= 1e-5 * other.grad.norm(), name


def test_what_stands_for_padding_has_no_influence(installed: Any) -> None:
    given = batch((9, 40))
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


def test_a_step_on_zeros_goes_back_through_every_block(tiny_qwen_image: Path) -> None:
    model: Any = transformer.load(tiny_qwen_image)
    CODE.install(model, attend=attend_with(Attention.SDPA), recomputed=sys.maxsize)
    calls = []
    for number, block in enumerate(QWEN_IMAGE.blocks_of(model)):
        block.register_forward_pre_hook(lambda *_, number=number: calls.append(number))
    job = Model(family=ModelFamily.QWEN_IMAGE, path=str(tiny_qwen_image))
    step_on_zeros(model, Shape(8, 12, 32), model=job, batch_size=2, masked=True)
    assert calls == [0, 1, 2, 2, 1, 0]
    assert all(one.grad is None for one in model.parameters())


def test_the_automatic_shift_is_the_pipelines(pipeline: Any) -> None:
    found = pipeline.scheduler.config
    numbers = (found.base_image_seq_len, found.max_image_seq_len, found.base_shift, found.max_shift)
    for tokens in (16, 256, 1024, 4096):
        wanted = math.exp(calculate_shift(tokens, *numbers))
        assert schedule.automatic_shift(tokens, QWEN_IMAGE.shift) == pytest.approx(wanted)


@pytest.mark.parametrize("scale", [1.0, 4.0])
def test_a_picture_is_that_of_the_pipeline_with_the_same_seed_and_guidance(
    pipeline: Any, installed: Any, tiny_qwen_image: Path, scale: float
) -> None:
    """Two passes are as long as the prompt's alone."""
    width, height, steps, seed = 96, 64, 4, 7
    expected = pipeline(
        PROMPT, negative_prompt=NEGATIVE, width=width, height=height, num_inference_steps=steps, true_cfg_scale=scale,
        generator=torch.Generator().manual_seed(seed), max_sequence_length=tiny.TEXT_TOKENS, output_type="pil",
    ).images[0]  # fmt: skip
    prompt, negative = (
        Text(sequence=text[None], pooled=torch.zeros(1, 0)) for text in texts(pipeline, [PROMPT, NEGATIVE])
    )
    latents = denoise(
        installed,
        draw_noise(seed, QWEN_IMAGE.grid, channels=4, width=width, height=height),
        prompt,
        family=QWEN_IMAGE,
        code=CODE,
        guidance=Guidance(told=None, scale=scale, negative=negative),
        scheduler=read_scheduler(tiny_qwen_image, QWEN_IMAGE),
        steps=steps,
        go_on=lambda: None,
    )
    found = np.asarray(PictureDecoder(tiny_qwen_image, QWEN_IMAGE, CPU, code=CODE).decode(latents)[0], dtype=np.float32)
    apart = np.abs(found - np.asarray(expected, dtype=np.float32))
    assert apart.max() <= 1.0
    assert apart.mean() < 0.001
    assert found.std() > 10.0  # it is no even surface, of which any loop would make the same


def test_adapters_that_were_saved_are_loaded_by_the_pipeline(tiny_qwen_image: Path, tmp_path: Path) -> None:
    settings = Lora(rank=4, alpha=8)
    trained = load(tiny_qwen_image).transformer
    lora.add_adapters(trained, settings, QWEN_IMAGE.presets, seed=0)
    torch.manual_seed(3)
    for name, parameter in trained.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.2)
    factors = {name: value for name, value in trained.named_parameters() if value.requires_grad}
    lora.save(factors, settings, tmp_path)
    theirs, given = load(tiny_qwen_image), batch((9, 9))

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
