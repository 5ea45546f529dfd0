"""What the VAE takes of a GPU where pictures are encoded while training (imageEmbeds.mode OnDemand, OnTheFly): a model.

It takes its parameters in bfloat16, and at the peak of a call what its family says of each pixel. It is taken for granted
that attention, at an eighth of the size, keeps no matrix. What cuDNN takes beside that is not counted. What the text
encoders take, where captions are encoded while training: text_encoders.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oarlock_api.dataset import EmbedMode

if TYPE_CHECKING:
    from oarlock_api.dataset import Dataset
    from oarlock_api.training import Training
    from oarlock_trainer.models.family import Autoencoder

VAE_BATCH = 4
"""Pictures of a call where the job names no other number."""
_BFLOAT16 = 2
_RGB = 3


def vae_batch(training: Training) -> int:
    """Pictures of one call of the VAE, which takes videos one by one."""
    return training.data.tuning.vae_batch_size or VAE_BATCH


def live(training: Training, *, videos: bool) -> list[Dataset]:
    """Data sets of videos, or else of pictures, that are encoded while training."""
    encoded = [one for one in training.data.datasets if one.image_embeds.mode is not EmbedMode.CACHE]
    return [one for one in encoded if bool(one.video) is videos]


def vae_bytes(vae: Autoencoder, *, pictures: int, pixels: int, frames: int = 1) -> int:
    """Bytes of the VAE at work on `pictures` of so many pixels each, or on videos of so many frames of them."""
    each = vae.pixel_bytes if frames == 1 else vae.video * vae.pixel_bytes + _RGB * _BFLOAT16 * frames
    return vae.parameters * _BFLOAT16 + pictures * pixels * each
