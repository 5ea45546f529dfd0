"""The noise levels that FLUX.1's pictures are made at."""

from __future__ import annotations

from typing import Any

import numpy as np

from oarlock_trainer.models.picture_shift import picture_shift


def set_noise_levels(scheduler: Any, steps: int, image_tokens: int) -> None:
    """Give the scheduler its noise levels, as FluxPipeline does: larger pictures stay noisy for longer."""
    shift = picture_shift(scheduler.config, image_tokens)
    if scheduler.config.get("use_flow_sigmas"):
        scheduler.set_timesteps(steps, mu=shift)
    else:
        scheduler.set_timesteps(sigmas=np.linspace(1.0, 1 / steps, steps), mu=shift)
    scheduler.set_begin_index(0)
