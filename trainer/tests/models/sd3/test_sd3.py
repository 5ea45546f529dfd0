"""Texts, the loss, pictures and exports of Stable Diffusion 3.5, against diffusers' own pipeline."""

from __future__ import annotations

import filecmp
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from oarlock_api.objective import Loss
from oarlock_api.weights import Lora, ModelFlavor
from oarlock_trainer.models.objective import schedule
from oarlock_trainer.ranks import preload

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

preload.settle_environment()
import torch  # noqa: E402 - reads the environment that was just settled
from diffusers import FlowMatchEulerDiscreteScheduler, StableDiffusion3Pipeline  # noqa: E402 - before ours
from diffusers.pipelines.stable_diffusion_3 import pipeline_stable_diffusion_3 as theirs  # noqa: E402
from flux_pair import distance  # noqa: E402
from saving import Plain, save_alone  # noqa: E402

from oarlock_trainer.checkpoint.export import Export  # noqa: E402
from oarlock_trainer.checkpoint.format import valid_checkpoints  # noqa: E402
from oarlock_trainer.engine.engine import MASTER, TensorSlice  # noqa: E402
from oarlock_trainer.models import transformer  # noqa: E402
from oarlock_trainer.models.adapters import lora  # noqa: E402
from oarlock_trainer.models.encoders import PictureEncoder  # noqa: E402
from oarlock_trainer.models.objective import loss  # noqa: E402
from oarlock_trainer.models.sd3 import tiny  # noqa: E402
from oarlock_trainer.models.sd3.captions import CaptionEncoder  # noqa: E402
from oarlock_trainer.models.sd3.code import CODE  # noqa: E402
from oarlock_trainer.models.sd3.family import STABLE_DIFFUSION_3  # noqa: E402
from oarlock_trainer.validation.decoding import PictureDecoder  # noqa: E402
from oarlock_trainer.validation.sampling import Guidance, Text, denoise, draw_noise, read_scheduler  # noqa: E402

CPU = torch.device("cpu")
PROMPT, NEGATIVE = "two cats asleep on a red chair", "the surface of the moon"
CAPTIONS = ["a cat", "the surface of the moon with craters and long shadows, " * 9, ""]
TOKENS = 77 + tiny.TEXT_TOKENS


@pytest.fixture(scope="module")
def pipeline(tiny_sd3: Path) -> Any:
    found = StableDiffusion3Pipeline.from_pretrained(tiny_sd3, dtype=torch.float32)
    found.set_progress_bar_config(disable=True)
    return found


def prompt_embeds(pipeline: Any, prompts: list[str]) -> tuple[Tensor, Tensor]:
    """Sequences and vectors as the pipeline makes them."""
    # As the encoder does: with gradients some processors take other kernels, which round otherwise.
    with torch.inference_mode():
        sequence, _, pooled, _ = pipeline.encode_prompt(
            prompts, None, None, do_classifier_free_guidance=False, max_sequence_length=tiny.TEXT_TOKENS
        )
    return sequence.clone(), pooled.clone()


def test_the_tiny_model_is_the_same_every_time(tiny_sd3: Path, tmp_path: Path) -> None:
    tiny.write(tmp_path)
    files = [path.relative_to(tiny_sd3).as_posix() for path in tiny_sd3.rglob("*") if path.is_file()]
    assert len(files) >= 16
    assert filecmp.cmpfiles(tiny_sd3, tmp_path, files, shallow=False)[0] == files


def test_captions_are_encoded_as_the_pipeline_encodes_prompts(pipeline: Any, tiny_sd3: Path) -> None:
    encoder = CaptionEncoder(tiny_sd3, ModelFlavor.LARGE, CPU)
    sequences, pooled, lengths = encoder.encode(CAPTIONS)
    expected, expected_pooled = prompt_embeds(pipeline, CAPTIONS)
    assert torch.equal(sequences, expected.to(torch.bfloat16))
    assert torch.equal(pooled, expected_pooled.to(torch.bfloat16))
    assert (encoder.tokens, lengths[1], lengths[2]) == (TOKENS, TOKENS, 78)  # of nothing T5's end token is left
    assert 78 < lengths[0] < TOKENS
    found = STABLE_DIFFUSION_3.read_encoded(tiny_sd3, ModelFlavor.MEDIUM)
    assert (found.tokens, found.width) == sequences.shape[1:]
    assert (found.pooled, found.channels, found.factor) == (pooled.shape[1], tiny.LATENT_CHANNELS, 8)


def test_weights_that_stay_in_the_nodes_memory_encode_the_same_and_leave_the_device_again(tiny_sd3: Path) -> None:
    streamed = CaptionEncoder(tiny_sd3, ModelFlavor.LARGE, CPU, streamed=True)
    sequences, _, _ = streamed.encode(CAPTIONS)
    assert torch.equal(sequences, CaptionEncoder(tiny_sd3, ModelFlavor.LARGE, CPU).encode(CAPTIONS)[0])
    assert {weight.device.type for weight in streamed._t5.parameters()} == {"meta"}


def test_latents_are_the_distributions_sample_shifted_and_scaled(pipeline: Any, tiny_sd3: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (1, 32, 48, 3), dtype=np.uint8)
    latents = PictureEncoder(tiny_sd3, STABLE_DIFFUSION_3, CPU, code=CODE).encode(pixels, [5])
    with torch.no_grad():
        found = pipeline.vae.encode(torch.from_numpy(pixels).permute(0, 3, 1, 2) / 127.5 - 1).latent_dist
    noise = torch.randn(4, 4, 6, generator=torch.Generator().manual_seed(5))
    assert distance(latents, (found.mean + found.std * noise - 0.0609) * 1.5305) < 2**-8


def test_the_loss_is_flow_matching_as_diffusers_writes_it(pipeline: Any) -> None:
    """noise - x0 is the target, x_t = (1 - sigma) x0 + sigma noise, mean squared error in float32, of both weights' sides."""
    source = torch.Generator().manual_seed(1)
    shapes = {"latents": (2, 4, 6, 8), "noise": (2, 4, 6, 8), "text": (2, 9, tiny.TEXT_WIDTH), "pooled": (2, 40)}
    given = loss.MicroBatch(
        **{name: torch.randn(shape, generator=source) for name, shape in shapes.items()},
        sigmas=torch.tensor([0.2, 0.9]), guidance=torch.ones(2), text_mask=None,
    )  # fmt: skip
    model = pipeline.transformer
    found = loss.flow_matching_loss(model, given, velocity=CODE.velocity, has_guidance=False, measure=Loss.MSE)
    gradients = torch.autograd.grad(found, list(model.parameters()))
    sigmas = given.sigmas.view(-1, 1, 1, 1)
    noisy = (1.0 - sigmas) * given.latents + sigmas * given.noise
    predicted = model(noisy, given.text, given.pooled, timestep=given.sigmas * 1000, return_dict=False)[0]
    wanted = ((predicted - (given.noise - given.latents)) ** 2).mean()
    assert float(found) == pytest.approx(float(wanted), rel=1e-5)
    for ours, expected in zip(gradients, torch.autograd.grad(wanted, list(model.parameters())), strict=True):
        assert distance(ours, expected) < 1e-5


@pytest.mark.parametrize("dynamic", [False, True])
def test_noise_levels_of_pictures_are_the_pipelines(pipeline: Any, *, dynamic: bool) -> None:
    schedulers = [
        FlowMatchEulerDiscreteScheduler.from_config(pipeline.scheduler.config, use_dynamic_shifting=dynamic)
        for _ in range(2)
    ]
    CODE.set_noise_levels(schedulers[0], 7, 1024)
    told = {"mu": theirs.calculate_shift(1024, max_shift=1.15)} if dynamic else {}
    theirs.retrieve_timesteps(schedulers[1], 7, CPU, **told)
    assert torch.equal(schedulers[0].sigmas, schedulers[1].sigmas)


def test_the_automatic_shift_is_the_schedulers_for_every_size(pipeline: Any) -> None:
    shifts = {schedule.automatic_shift(tokens, STABLE_DIFFUSION_3.shift) for tokens in (16, 4096)}
    assert shifts == {pipeline.scheduler.config.shift}


@pytest.mark.parametrize("scale", [1.0, 4.5])
def test_our_picture_is_that_of_the_pipeline_with_the_same_seed_and_guidance(
    pipeline: Any, tiny_sd3: Path, scale: float
) -> None:
    width, height, steps, seed = 96, 64, 4, 7
    texts = [
        Text(sequence=sequence[None], pooled=pooled[None])
        for sequence, pooled in zip(*prompt_embeds(pipeline, [PROMPT, NEGATIVE]), strict=True)
    ]
    noise = draw_noise(seed, STABLE_DIFFUSION_3.grid, channels=tiny.LATENT_CHANNELS, width=width, height=height)
    latents = denoise(
        pipeline.transformer, noise, texts[0], family=STABLE_DIFFUSION_3, code=CODE,
        guidance=Guidance(told=None, scale=scale, negative=texts[1]),
        scheduler=read_scheduler(tiny_sd3, STABLE_DIFFUSION_3), steps=steps, go_on=lambda: None,
    )  # fmt: skip
    ours = np.asarray(PictureDecoder(tiny_sd3, STABLE_DIFFUSION_3, CPU, code=CODE).decode(latents)[0], dtype=np.float32)
    wanted = pipeline(
        PROMPT, negative_prompt=NEGATIVE, guidance_scale=scale, width=width, height=height, num_inference_steps=steps,
        generator=torch.Generator().manual_seed(seed), max_sequence_length=tiny.TEXT_TOKENS,
    ).images[0]  # fmt: skip
    apart = np.abs(ours - np.asarray(wanted, dtype=np.float32))
    assert apart.max() <= 1.0
    assert apart.mean() < 0.001
    assert ours.std() > 10.0  # it is no even surface, of which any loop would make the same


class Trained(Plain):
    """Keeps a module's weights as the masters of one rank."""

    def __init__(self, module: Any) -> None:
        super().__init__()
        self.weights = module
        self._parts = [
            TensorSlice(name=name, slot=MASTER, start=0, values=weight.detach().float().flatten())
            for name, weight in module.named_parameters()
        ]


@pytest.mark.parametrize("largest", [4 * 10**9, 200_000])
def test_the_exported_model_is_what_the_pipeline_loads_with_its_table_of_positions(
    tiny_sd3: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, largest: int
) -> None:
    monkeypatch.setattr("oarlock_trainer.checkpoint.weight_files._LARGEST_FILE", largest)
    module = transformer.load(tiny_sd3)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.125)
    save_alone(tmp_path, 10, engine=Trained(module))
    exporting = Export(valid_checkpoints(tmp_path)[0], tiny_sd3, tmp_path / "model", adapters=None)
    exporting.begin()
    for rank in range(2):
        exporting.write_share(rank, 2)
    loaded = StableDiffusion3Pipeline.from_pretrained(exporting.complete(), dtype=torch.bfloat16).transformer
    found, wanted = loaded.state_dict(), module.state_dict()
    assert found.keys() == wanted.keys() >= {"pos_embed.pos_embed"}
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)


def test_a_model_whose_weights_come_from_a_checkpoint_has_the_files_table_of_positions(tiny_sd3: Path) -> None:
    whole, blank = transformer.load(tiny_sd3), transformer.load(tiny_sd3, blank=True)
    elsewhere = transformer.load(tiny_sd3, reads=False)
    for model in (blank, elsewhere):
        assert torch.equal(model.pos_embed.pos_embed, whole.pos_embed.pos_embed)
        assert "pos_embed.pos_embed" not in dict(model.named_parameters())
    assert not any(parameter.any() for parameter in blank.parameters())
    assert whole.pos_embed.pos_embed.any()


def test_exported_adapters_are_loaded_by_the_pipeline_and_predict_the_same(tiny_sd3: Path, tmp_path: Path) -> None:
    settings, model = Lora(rank=4, alpha=2.0), transformer.load(tiny_sd3)
    given = {
        "hidden_states": torch.randn(1, 4, 8, 8).bfloat16(), "encoder_hidden_states": torch.randn(1, 9, 48).bfloat16(),
        "pooled_projections": torch.randn(1, 40).bfloat16(), "timestep": torch.tensor([500.0]), "return_dict": False,
    }  # fmt: skip
    with torch.no_grad():
        base = model(**given)[0]
        lora.add_adapters(model, settings, STABLE_DIFFUSION_3.presets, seed=0)
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(parameter, std=0.1)
        ours = model(**given)[0]
        lora.save({name: one for name, one in model.named_parameters() if one.requires_grad}, settings, tmp_path)
        loaded = StableDiffusion3Pipeline.from_pretrained(tiny_sd3, dtype=torch.bfloat16)
        loaded.load_lora_weights(tmp_path)
        found = loaded.transformer(**given)[0]
    assert torch.equal(found, ours)
    assert distance(ours, base) > 0.01
