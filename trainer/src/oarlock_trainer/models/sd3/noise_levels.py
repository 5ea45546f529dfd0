"""The noise levels that pictures of Stable Diffusion 3.5 are made at."""

from __future__ import annotations

from typing import Any


def set_noise_levels(scheduler: Any, steps: int, image_tokens: int) -> None:
    """Give the scheduler its noise levels, as StableDiffusion3Pipeline does.

    The scheduler of the published models shifts them by a constant of its own; one that is to shift by the picture's size is
    told by how much.
    """
    found, more = scheduler.config, {}
    if found.get("use_dynamic_shifting"):
        few, many = found.get("base_image_seq_len", 256), found.get("max_image_seq_len", 4096)
        low, high = found.get("base_shift", 0.5), found.get("max_shift", 1.16)
        more["mu"] = low + (high - low) * (image_tokens - few) / (many - few)
    scheduler.set_timesteps(steps, **more)
    scheduler.set_begin_index(0)
