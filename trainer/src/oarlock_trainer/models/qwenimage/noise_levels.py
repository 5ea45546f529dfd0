"""The noise levels that Qwen-Image's pictures are made at."""

from __future__ import annotations

from typing import Any

import numpy as np

from oarlock_trainer.models.picture_shift import picture_shift


def set_noise_levels(scheduler: Any, steps: int, image_tokens: int) -> None:
    """Give the scheduler its noise levels, as QwenImagePipeline does.

    The published scheduler shifts them by the picture's size, and then stretches them so that the last one is 0.02: that
    makes no number of a single step.
    """
    shift = picture_shift(scheduler.config, image_tokens)
    scheduler.set_timesteps(sigmas=np.linspace(1.0, 1 / steps, steps), mu=shift)
    scheduler.set_begin_index(0)
