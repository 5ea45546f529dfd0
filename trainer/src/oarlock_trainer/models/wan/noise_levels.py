"""The noise levels that Wan's videos are made at."""

from __future__ import annotations

from typing import Any


def set_noise_levels(scheduler: Any, steps: int, image_tokens: int) -> None:
    """Give the scheduler its noise levels, as WanPipeline does: its own configuration says how they are shifted.

    It is UniPC, which remembers earlier steps: this makes it forget them. Raises ValueError where its configuration is that
    of another scheduler, and says nothing of flow matching.
    """
    del image_tokens
    if not scheduler.config.use_flow_sigmas or scheduler.config.prediction_type != "flow_prediction":
        raise ValueError(
            "scheduler/scheduler_config.json is none of UniPC for flow matching (use_flow_sigmas, prediction_type): take "
            "that of the published model"
        )
    scheduler.set_timesteps(steps)
    scheduler.set_begin_index(0)
