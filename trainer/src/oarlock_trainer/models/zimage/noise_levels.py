"""The noise levels that Z-Image's pictures are made at."""

from __future__ import annotations

from typing import Any

import torch


def set_noise_levels(scheduler: Any, steps: int, image_tokens: int) -> None:
    """Give the scheduler its noise levels, as ZImagePipeline does.

    The published schedulers shift them all by one factor; the shift that grows with the picture is for those that ask for
    it.
    """
    found = scheduler.config
    few, many = found.get("base_image_seq_len", 256), found.get("max_image_seq_len", 4096)
    low, high = found.get("base_shift", 0.5), found.get("max_shift", 1.15)
    shift = low + (high - low) * (image_tokens - few) / (many - few)
    scheduler.set_timesteps(sigmas=torch.linspace(1.0, 1 / steps, steps).tolist(), mu=shift)
    scheduler.set_begin_index(0)
