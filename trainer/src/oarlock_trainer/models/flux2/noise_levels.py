"""The noise levels that FLUX.2's pictures are made at."""

from __future__ import annotations

from typing import Any

import numpy as np

from oarlock_trainer.models.flux2.shift import shift_exponent


def set_noise_levels(scheduler: Any, steps: int, image_tokens: int) -> None:
    """Give the scheduler its noise levels, as Flux2Pipeline and Flux2KleinPipeline do."""
    mu = shift_exponent(image_tokens, steps)
    if scheduler.config.get("use_flow_sigmas"):
        scheduler.set_timesteps(steps, mu=mu)
    else:
        scheduler.set_timesteps(sigmas=np.linspace(1.0, 1 / steps, steps), mu=mu)
    scheduler.set_begin_index(0)
