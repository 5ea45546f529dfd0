"""Each family's pictures become latents, and are drawn, as in diffusers' pipeline."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from oarlock_trainer.models.objective import schedule
from oarlock_trainer.ranks import preload

preload.settle_environment()
import family_pipelines  # noqa: E402, F401 - diffusers' pipelines, before anything of ours
import torch  # noqa: E402 - reads the environment that was just settled
from flux_pair import distance  # noqa: E402
from tiny_pipelines import CPU  # noqa: E402

from oarlock_trainer.validation.decoding import PictureDecoder  # noqa: E402
from oarlock_trainer.validation.sampling import Guidance, denoise, draw_noise, read_scheduler  # noqa: E402

if TYPE_CHECKING:
    from tiny_pipelines import Drawn, Tiny

PROMPT = "two cats asleep on a red chair"
WIDTH, HEIGHT, SEED = 96, 64, 7


def test_latents_are_those_that_the_pipeline_makes_of_a_picture(tiny: Tiny) -> None:
    for frames in tiny.record.frames:
        shape = (2, 32, 48, 3) if frames == 1 else (2, frames, 32, 48, 3)
        pixels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
        found = tiny.pictures.encode(pixels, [5, 6])
        noise = torch.stack(
            [torch.randn(found.shape[1:], generator=torch.Generator().manual_seed(seed)) for seed in (5, 6)]
        )
        with torch.no_grad():
            wanted = tiny.record.latents(tiny.pipeline, pixels, noise)
        assert found.shape == wanted.shape
        assert distance(found, wanted) < 2**-8
        assert (found.float() - wanted).abs().max() <= tiny.record.near
        assert torch.equal(found, tiny.pictures.encode(pixels, [5, 6]))


def test_the_automatic_shift_is_the_pipelines(tiny: Tiny) -> None:
    for tokens in tiny.record.shifted:
        wanted = tiny.record.shift(tiny.pipeline, tokens)
        assert schedule.automatic_shift(tokens, tiny.family.shift) == pytest.approx(wanted)


def test_a_picture_is_that_of_the_pipeline_with_the_same_seed_and_guidance(tiny: Tiny) -> None:
    for drawn in tiny.record.draws:
        found, wanted = ours(tiny, drawn), theirs(tiny, drawn)
        assert found.shape == wanted.shape == (drawn.frames, HEIGHT, WIDTH, 3)
        apart = np.abs(found - wanted)
        assert apart.max() <= 1.0, drawn
        assert apart.mean() < 0.001, drawn
        assert found.std() > 10.0  # it is no even surface, of which any loop would make the same


def theirs(tiny: Tiny, drawn: Drawn) -> np.ndarray:
    record = tiny.record
    more = {"negative_prompt": record.negative} if record.negative and not record.is_told else {}
    more |= {"num_frames": drawn.frames} if tiny.family.is_video else {}
    found = tiny.pipeline(
        prompt=PROMPT, width=WIDTH, height=HEIGHT, num_inference_steps=record.steps, output_type="pil",
        generator=torch.Generator().manual_seed(SEED), max_sequence_length=record.tiny.TEXT_TOKENS,
        **{record.scale: drawn.scale}, **more,
    )  # fmt: skip
    pictures = found.frames[0] if tiny.family.is_video else found.images
    return np.stack([np.asarray(one, dtype=np.float32) for one in pictures])


def ours(tiny: Tiny, drawn: Drawn) -> np.ndarray:
    """Drawn twice: a scheduler that remembers earlier steps makes the second one of nothing but its own."""
    prompt, negative = tiny.texts([PROMPT, tiny.record.negative])
    channels = tiny.family.architecture(tiny.pipeline.transformer.config).latent_channels
    told = drawn.scale if tiny.record.is_told else None
    scale = 1.0 if tiny.record.is_told else drawn.scale - tiny.family.unguided + 1.0
    scheduler = read_scheduler(tiny.folder, tiny.family)

    def once() -> np.ndarray:
        latents = denoise(
            tiny.installed,
            draw_noise(SEED, tiny.family.grid, channels=channels, width=WIDTH, height=HEIGHT, frames=drawn.frames),
            prompt,
            family=tiny.family,
            code=tiny.code,
            guidance=Guidance(told=told, scale=scale, negative=negative),
            scheduler=scheduler,
            steps=tiny.record.steps,
            go_on=lambda: None,
        )
        decoded = PictureDecoder(tiny.folder, tiny.family, CPU, code=tiny.code).decode(latents)
        return np.stack([np.asarray(one, dtype=np.float32) for one in decoded])

    found = once()
    assert np.array_equal(found, once())
    return found
