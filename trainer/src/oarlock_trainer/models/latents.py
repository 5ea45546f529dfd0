"""How latents are made of pictures by a family's VAE, and pictures of latents: two functions, which each family names.

What a transformer is trained on is what its pipeline in diffusers gives it: a sample or the mean of what the VAE says,
scaled by numbers that stand in its configuration or among its weights, in patches or not. Cached is what `encode` returns,
so it must not change for a family while people have caches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor


class Encode(Protocol):
    """Pictures -> latents."""

    def __call__(self, vae: Any, pixels: Tensor, draw: Callable[[Sequence[int]], Tensor]) -> Tensor:
        """(B, 3, H, W), -1..1 in the VAE's type -> (B, C, h, w) float32, which is rounded and cached.

        Of a family of videos it is (B, 3, F, H, W), of pictures with F = 1, and all frames of a channel follow each other:
        (B, C f, h, w) of f latent frames.

        `draw` gives normal numbers for a shape without B, (B, *shape) float32 on the VAE's device: the same for the same
        picture each time. Called once at most.
        """
        ...


class Decode(Protocol):
    """Latents -> pictures."""

    def __call__(self, vae: Any, latents: Tensor) -> Tensor:
        """(B, C, h, w) float32 -> (B, 3, H, W) in the VAE's type and on its device, about -1..1.

        Of a family of videos (B, C f, h, w) -> (B, 3, F, H, W).
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Latents:
    """A family's way from pictures to what is trained on, and back. `vae` is its class of diffusers, frozen."""

    encode: Encode
    decode: Decode


def _encode(vae: Any, pixels: Tensor, draw: Callable[[Sequence[int]], Tensor]) -> Tensor:
    distribution = vae.encode(pixels).latent_dist
    sample = distribution.mean.float() + distribution.std.float() * draw(distribution.mean.shape[1:])
    shifted: Tensor = (sample - vae.config.shift_factor) * vae.config.scaling_factor
    return shifted


def _decode(vae: Any, latents: Tensor) -> Tensor:
    sample = latents / vae.config.scaling_factor + vae.config.shift_factor
    pixels: Tensor = vae.decode(sample.to(vae.device, vae.dtype), return_dict=False)[0]
    return pixels


SHIFTED_AND_SCALED = Latents(encode=_encode, decode=_decode)
"""Of AutoencoderKL: one sample of the distribution, taken in float32, shifted and scaled as its configuration says."""
