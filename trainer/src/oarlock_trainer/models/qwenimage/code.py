"""What Qwen-Image computes in its own way: one record of the functions of this folder."""

from __future__ import annotations

from oarlock_trainer.models.family_code import FamilyCode
from oarlock_trainer.models.qwenimage import forward, tiny
from oarlock_trainer.models.qwenimage.captions import CaptionEncoder
from oarlock_trainer.models.qwenimage.guidance import as_long
from oarlock_trainer.models.qwenimage.latents import LATENTS
from oarlock_trainer.models.qwenimage.noise_levels import set_noise_levels
from oarlock_trainer.models.qwenimage.seen_captions import SeeingEncoder
from oarlock_trainer.models.qwenimage.velocity import velocity

CODE = FamilyCode(
    velocity=velocity,
    install=forward.install,
    caption_encoder=CaptionEncoder,
    latents=LATENTS,
    set_noise_levels=set_noise_levels,
    seeing_encoder=SeeingEncoder,
    write_tiny=tiny.write,
    guide=as_long,
)
