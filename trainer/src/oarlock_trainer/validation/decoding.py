"""Latents -> pixels, by the model's VAE, which waits on the CPU between two pictures: training has the GPU's memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from PIL import Image

from oarlock_trainer.models.classes import imported
from oarlock_trainer.models.encoders import load_frozen
from oarlock_trainer.models.family import VAE, Family

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    from oarlock_trainer.models.family_code import FamilyCode


class NotFiniteError(ValueError):
    """The weights made no picture: its values are not finite."""


class PictureDecoder:
    """The VAE's decoder."""

    def __init__(self, model: Path, family: Family, device: torch.device, *, code: FamilyCode) -> None:
        """bfloat16 on a GPU; float32 on the CPU, where bfloat16 convolutions are slow."""
        dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
        self._vae = load_frozen(imported(family.autoencoder), model / VAE, "cpu", dtype=dtype, low_cpu_mem_usage=False)
        self._device, self._latents, self._is_video = device, code.latents, family.is_video

    @torch.no_grad()
    def decode(self, latents: Tensor) -> list[Image.Image]:
        """(1, C, h, w) float32, as they are trained on -> RGB: all frames of a video, or the one picture.

        Raises NotFiniteError.
        """
        try:
            self._vae.to(self._device)
            pixels = self._latents.decode(self._vae, latents)
        finally:
            self._vae.to("cpu")
        if not bool(torch.isfinite(pixels).all()):
            raise NotFiniteError("its values are not finite")
        frames = pixels[0] if self._is_video else pixels[0][:, None]
        values = (frames.float() / 2 + 0.5).clamp(0.0, 1.0).permute(1, 2, 3, 0).cpu()
        return [Image.fromarray(one) for one in (values * 255).round().to(torch.uint8).numpy()]
