"""The shift of noise levels of FLUX.2's pictures: it grows with the picture, and is smaller where there are more steps.

diffusers' pipelines have mu on a plane through two lines: one of 10 steps and one of 200. Above 4300 tokens they take the
second line alone, whatever the steps.
"""

from __future__ import annotations

from oarlock_trainer.models.family import Shift

_MOST_TOKENS = 4300
_OF_10 = (8.73809524e-05, 1.89833333)
_OF_200 = (0.00016927, 0.45666666)
_STEPS = 50
"""Those of the models that are not distilled."""


def shift_exponent(image_tokens: int, steps: int) -> float:
    """The mu that diffusers' compute_empirical_mu gives: noise levels are shifted by exp(mu)."""
    many = _OF_200[0] * image_tokens + _OF_200[1]
    if image_tokens > _MOST_TOKENS:
        return many
    few = _OF_10[0] * image_tokens + _OF_10[1]
    return many + (few - many) * (200 - steps) / 190


TRAINED = Shift(few_tokens=256, low=shift_exponent(256, _STEPS), many_tokens=4096, high=shift_exponent(4096, _STEPS))
"""For objective.autoShift: what pictures of 50 steps are drawn with, along one line also above 4300 tokens."""
