"""The learning rate as a pure function of the step: nothing to save, nothing to restore.

The shapes are those of diffusers' get_scheduler, which SimpleTuner uses: linear warm-up from 0, then the decay over the
rest of the run.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from oarlock_api.optimization import ScheduleName

if TYPE_CHECKING:
    from oarlock_api.optimization import Optimizer


def learning_rate(optimizer: Optimizer, step: int, total: int) -> float:
    """Learning rate of optimizer step `step`, counted from 0, of `total`."""
    schedule, peak = optimizer.schedule, optimizer.learning_rate
    if step < schedule.warmup_steps:
        return peak * step / schedule.warmup_steps
    if schedule.name is ScheduleName.CONSTANT:
        return peak
    low = schedule.end_learning_rate or 0.0
    done = min((step - schedule.warmup_steps) / max(total - schedule.warmup_steps, 1), 1.0)
    cycles = schedule.cycles or 1
    if schedule.name is ScheduleName.LINEAR:
        share = 1.0 - done
    elif schedule.name is ScheduleName.POLYNOMIAL:
        share = (1.0 - done) ** (schedule.power or 1.0)
    elif schedule.name is ScheduleName.COSINE:
        share = 0.5 * (1.0 + math.cos(math.pi * done))
    elif schedule.name is ScheduleName.COSINE_WITH_RESTARTS:
        share = 0.0 if done >= 1.0 else 0.5 * (1.0 + math.cos(math.pi * ((cycles * done) % 1.0)))
    else:  # Sine: `cycles` full waves, starting at the peak
        share = 0.5 * (1.0 + math.sin(math.pi * (2.0 * cycles * done + 0.5)))
    return low + (peak - low) * share
