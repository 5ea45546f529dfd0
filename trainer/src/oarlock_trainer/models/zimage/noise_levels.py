"""The noise levels that Z-Image's pictures are made at."""

from __future__ import annotations

from typing import Any

import torch

from oarlock_trainer.models.picture_shift import picture_shift


def set_noise_levels(scheduler: Any, steps: int, image_tokens: int) -> None:
    """Give the scheduler its noise levels, as ZImagePipeline does.

    The published schedulers shift them all by one factor; the shift that grows with the picture is for those that ask for
    it.
    """
    shift = picture_shift(scheduler.config, image_tokens)
    scheduler.set_timesteps(sigmas=torch.linspace(1.0, 1 / steps, steps).tolist(), mu=shift)
    scheduler.set_begin_index(0)
