"""The latents of FLUX.2: the mean that the VAE says, in patches of 2 x 2, normalised by its batch norm's statistics.

So a latent is a token already: 128 channels, at a sixteenth of the picture's size. Nothing is drawn: the pipelines give
their transformer the mean of the pictures that they are shown, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from oarlock_trainer.models.latents import Latents

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor


def _encode(vae: Any, pixels: Tensor, draw: Callable[[Sequence[int]], Tensor]) -> Tensor:
    del draw
    mean, deviation = _statistics(vae)
    normalised: Tensor = (patches(vae.encode(pixels).latent_dist.mean.float()) - mean) / deviation
    return normalised


def _decode(vae: Any, latents: Tensor) -> Tensor:
    mean, deviation = _statistics(vae)
    whole = from_patches(latents.to(mean.device) * deviation + mean)
    pixels: Tensor = vae.decode(whole.to(vae.dtype), return_dict=False)[0]
    return pixels


def _statistics(vae: Any) -> tuple[Tensor, Tensor]:
    """(1, C, 1, 1) float32 twice: mean and standard deviation of each channel."""
    mean, variance = (one.float().view(1, -1, 1, 1) for one in (vae.bn.running_mean, vae.bn.running_var))
    return mean, torch.sqrt(variance + vae.config.batch_norm_eps)


def patches(latents: Tensor) -> Tensor:
    """(B, c, 2 h, 2 w) -> (B, 4 c, h, w)."""
    return torch.nn.functional.pixel_unshuffle(latents, 2)


def from_patches(latents: Tensor) -> Tensor:
    """(B, 4 c, h, w) -> (B, c, 2 h, 2 w): the inverse of `patches`."""
    return torch.nn.functional.pixel_shuffle(latents, 2)


LATENTS = Latents(encode=_encode, decode=_decode)
