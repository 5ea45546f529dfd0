"""The latents of Wan: the mean of what its VAE says of a video, each channel by a mean and a deviation of its own.

Wan was trained on the mean, and diffusers' pipelines that are given a video take it: nothing is drawn. A video of F frames
has f = 1 + (F - 1) / 4 latents: the first frame one of its own, then each four together. Outside of this folder they are one
tensor of C f channels, all frames of a channel behind each other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from oarlock_trainer.models.latents import Latents

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor


def _encode(vae: Any, pixels: Tensor, draw: Callable[[Sequence[int]], Tensor]) -> Tensor:
    """(B, 3, F, H, W) -> (B, C f, h, w)."""
    del draw
    mean = vae.encode(pixels).latent_dist.mean.float()
    middle, width = _statistics(vae, mean.device)
    return joined((mean - middle) / width)


def _decode(vae: Any, latents: Tensor) -> Tensor:
    """(B, C f, h, w) -> (B, 3, F, H, W)."""
    middle, width = _statistics(vae, latents.device)
    video = parted(latents, vae.config.z_dim) * width + middle
    pixels: Tensor = vae.decode(video.to(vae.device, vae.dtype), return_dict=False)[0]
    return pixels


def _statistics(vae: Any, device: torch.device) -> tuple[Tensor, Tensor]:
    """(1, C, 1, 1, 1) float32 twice: mean and standard deviation of each channel."""
    mean, deviation = (
        torch.tensor(one, dtype=torch.float32, device=device).view(1, -1, 1, 1, 1)
        for one in (vae.config.latents_mean, vae.config.latents_std)
    )
    return mean, deviation


def joined(video: Tensor) -> Tensor:
    """(B, C, f, h, w) -> (B, C f, h, w)."""
    return video.flatten(1, 2)


def parted(latents: Tensor, channels: int) -> Tensor:
    """(B, C f, h, w) -> (B, C, f, h, w) of so many channels: the inverse of `joined`."""
    return latents.reshape(len(latents), channels, -1, *latents.shape[2:])


LATENTS = Latents(encode=_encode, decode=_decode)
