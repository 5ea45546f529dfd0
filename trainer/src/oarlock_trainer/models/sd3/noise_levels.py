"""The noise levels that pictures of Stable Diffusion 3.5 are made at."""

from __future__ import annotations

from typing import Any

from oarlock_trainer.models.picture_shift import picture_shift


def set_noise_levels(scheduler: Any, steps: int, image_tokens: int) -> None:
    """Give the scheduler its noise levels, as StableDiffusion3Pipeline does.

    The scheduler of the published models shifts them by a constant of its own; one that is to shift by the picture's size is
    told by how much.
    """
    more = {}
    if scheduler.config.get("use_dynamic_shifting"):
        more["mu"] = picture_shift(scheduler.config, image_tokens, high=1.16)
    scheduler.set_timesteps(steps, **more)
    scheduler.set_begin_index(0)
