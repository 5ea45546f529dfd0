"""Shapes of the steps on zeros: those of the buckets, of videos with all their frames."""

from __future__ import annotations

from dataclasses import replace

from oarlock_trainer.models.flux.family import FLUX1
from oarlock_trainer.models.warm_up import Shape


def test_a_shape_of_videos_has_the_latents_of_all_frames() -> None:
    grid = replace(FLUX1.grid, frames=4)
    video = Shape.of(height=480, width=832, frames=81, text_tokens=512, grid=grid)
    picture = Shape.of(height=480, width=832, text_tokens=512, grid=grid)
    assert (video.frames, picture.frames) == (21, 1)
    assert video.latents == 21 * picture.latents == 21 * 60 * 104
