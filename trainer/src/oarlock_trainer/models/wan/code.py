"""What Wan computes in its own way: one record of the functions of this folder."""

from __future__ import annotations

from oarlock_trainer.models.family_code import FamilyCode
from oarlock_trainer.models.wan import forward, tiny
from oarlock_trainer.models.wan.captions import CaptionEncoder
from oarlock_trainer.models.wan.latents import LATENTS
from oarlock_trainer.models.wan.noise_levels import set_noise_levels
from oarlock_trainer.models.wan.velocity import velocity

CODE = FamilyCode(
    velocity=velocity,
    install=forward.install,
    caption_encoder=CaptionEncoder,
    latents=LATENTS,
    set_noise_levels=set_noise_levels,
    write_tiny=tiny.write,
)
