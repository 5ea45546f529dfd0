"""Which noise level a sample is trained at.

sigma = sigmoid(scale x N(0, 1)), uniform or Beta, then shifted: sigma' = s sigma / (1 + (s - 1) sigma). s is a constant, or
with autoShift the family's, as its pipeline in diffusers has it: one number, or exp(mu), mu linear in the number of image
tokens. The shifted level is spread over [minNoise, maxNoise] along a line.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from oarlock_api.objective import GuidanceMode, Objective, Timesteps

if TYPE_CHECKING:
    from oarlock_trainer.models.family import Shift
    from oarlock_trainer.runtime.draws import SampleDraws

_BETA = 2.0
"""Both parameters of the Beta distribution, as SimpleTuner has them."""


def noise_level(objective: Objective, draws: SampleDraws, *, image_tokens: int, automatic: Shift | float) -> float:
    """Sigma of a sample: 0 = the picture, 1 = pure noise."""
    if objective.timesteps is Timesteps.SIGMOID:
        sigma = 1.0 / (1.0 + math.exp(-objective.sigmoid_scale * draws.normal))
    elif objective.timesteps is Timesteps.BETA:
        sigma = draws.beta(objective.beta_alpha or _BETA, objective.beta_beta or _BETA)
    else:
        sigma = draws.uniform
    shift = automatic_shift(image_tokens, automatic) if objective.auto_shift else objective.timestep_shift
    shifted = shift * sigma / (1.0 + (shift - 1.0) * sigma)
    return objective.min_noise + (objective.max_noise - objective.min_noise) * shifted


def automatic_shift(image_tokens: int, shift: Shift | float) -> float:
    """Shift for a number of image tokens."""
    if isinstance(shift, float):
        return shift
    slope = (shift.high - shift.low) / (shift.many_tokens - shift.few_tokens)
    return math.exp(shift.low + slope * (image_tokens - shift.few_tokens))


def guidance(objective: Objective, draws: SampleDraws) -> float:
    """Guidance value that a sample is trained with."""
    settings = objective.guidance
    if settings.mode is GuidanceMode.CONSTANT or settings.min is None or settings.max is None:
        return settings.value
    return settings.min + (settings.max - settings.min) * draws.guidance
