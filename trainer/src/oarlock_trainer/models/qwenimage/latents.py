"""The latents of Qwen-Image: a sample of what the VAE says of one frame, each channel by a mean and a deviation of its own.

Those stand in the VAE's configuration. The VAE is one of videos: a picture is a video of one frame.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from oarlock_trainer.models.latents import Latents

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor


def _encode(vae: Any, pixels: Tensor, draw: Callable[[Sequence[int]], Tensor]) -> Tensor:
    distribution = vae.encode(pixels[:, :, None]).latent_dist
    mean, deviation = (one[:, :, 0].float() for one in (distribution.mean, distribution.std))
    sample = mean + deviation * draw(mean.shape[1:])
    middle, width = _statistics(vae, sample.device)
    normalised: Tensor = (sample - middle) / width
    return normalised


def _decode(vae: Any, latents: Tensor) -> Tensor:
    middle, width = _statistics(vae, latents.device)
    frame = (latents * width + middle)[:, :, None].to(vae.device, vae.dtype)
    pixels: Tensor = vae.decode(frame, return_dict=False)[0][:, :, 0]
    return pixels


def _statistics(vae: Any, device: torch.device) -> tuple[Tensor, Tensor]:
    """(1, C, 1, 1) float32 twice: mean and standard deviation of each channel."""
    mean, deviation = (
        torch.tensor(one, dtype=torch.float32, device=device).view(1, -1, 1, 1)
        for one in (vae.config.latents_mean, vae.config.latents_std)
    )
    return mean, deviation


LATENTS = Latents(encode=_encode, decode=_decode)
