"""How latents are made is the family's own to say, and holds for what is cached and for pictures."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from oarlock_trainer.ranks import preload

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

preload.settle_environment()
import torch  # noqa: E402 - reads the environment that was just settled

from oarlock_trainer.models.encoders import PictureEncoder  # noqa: E402
from oarlock_trainer.models.flux.code import CODE  # noqa: E402
from oarlock_trainer.models.flux.family import FLUX1  # noqa: E402
from oarlock_trainer.models.latents import SHIFTED_AND_SCALED, Latents  # noqa: E402
from oarlock_trainer.validation.decoding import PictureDecoder  # noqa: E402

CPU = torch.device("cpu")


def encode(vae: Any, pixels: torch.Tensor, draw: Callable[[Sequence[int]], torch.Tensor]) -> torch.Tensor:
    """In another layout, with a number of the draw beside the mean."""
    mean = vae.encode(pixels).latent_dist.mean.flatten(2, 3)[:, :, None]
    return torch.cat([mean, draw(mean.shape[1:])], dim=2)


def decode(vae: Any, latents: torch.Tensor) -> torch.Tensor:
    return SHIFTED_AND_SCALED.decode(vae, latents[:, :, 0].unflatten(2, (4, 6)))


OTHER = replace(CODE, latents=Latents(encode=encode, decode=decode))


def test_what_is_cached_and_what_pictures_are_made_of_is_what_the_family_says(tiny_flux: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (2, 32, 48, 3), dtype=np.uint8)
    latents = PictureEncoder(tiny_flux, FLUX1, CPU, code=OTHER).encode(pixels, [5, 6])
    assert latents.shape == (2, 4, 2, 24)
    drawn = torch.randn(4, 1, 24, generator=torch.Generator().manual_seed(6))
    assert torch.equal(latents[1, :, 1:], drawn.to(torch.bfloat16))
    usual = latents[:1, :, 0].unflatten(2, (4, 6)).float()
    expected = PictureDecoder(tiny_flux, FLUX1, CPU, code=CODE).decode(usual)[0]
    found = PictureDecoder(tiny_flux, FLUX1, CPU, code=OTHER).decode(latents[:1].float())[0]
    assert np.array_equal(np.asarray(found), np.asarray(expected))
