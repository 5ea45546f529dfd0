"""What FLUX.1 computes in its own way: one record of the functions of this folder."""

from __future__ import annotations

from dataclasses import replace

from oarlock_api.weights import BESIDE
from oarlock_trainer.models.family_code import FamilyCode
from oarlock_trainer.models.flux import forward, tiny
from oarlock_trainer.models.flux.captions import CaptionEncoder
from oarlock_trainer.models.flux.noise_levels import set_noise_levels
from oarlock_trainer.models.flux.velocity import velocity, velocity_beside
from oarlock_trainer.models.latents import SHIFTED_AND_SCALED

_WHOLE = FamilyCode(
    velocity=velocity,
    install=forward.install,
    caption_encoder=CaptionEncoder,
    latents=SHIFTED_AND_SCALED,
    set_noise_levels=set_noise_levels,
    write_tiny=tiny.write,
)
CODE = replace(_WHOLE, variants=dict.fromkeys(BESIDE, replace(_WHOLE, velocity=velocity_beside)))
