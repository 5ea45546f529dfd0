"""What FLUX.1 computes in its own way: one record of the functions of this folder."""

from __future__ import annotations

from oarlock_trainer.models.family_code import FamilyCode
from oarlock_trainer.models.flux import forward, tiny
from oarlock_trainer.models.flux.captions import CaptionEncoder
from oarlock_trainer.models.flux.noise_levels import set_noise_levels
from oarlock_trainer.models.flux.velocity import velocity
from oarlock_trainer.models.latents import SHIFTED_AND_SCALED

CODE = FamilyCode(
    velocity=velocity,
    install=forward.install,
    caption_encoder=CaptionEncoder,
    latents=SHIFTED_AND_SCALED,
    set_noise_levels=set_noise_levels,
    write_tiny=tiny.write,
)
