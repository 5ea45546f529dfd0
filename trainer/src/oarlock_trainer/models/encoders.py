"""The frozen encoder of pictures, and how frozen networks are loaded: only when something is missing from the cache."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from oarlock_trainer.models.classes import imported
from oarlock_trainer.models.family import VAE, Family
from oarlock_trainer.models.folder import loading

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from torch import Tensor

    from oarlock_trainer.models.family_code import FamilyCode


_OPAQUE, _RGB = 255, 3
_PICTURE_AXES = 4


class PictureEncoder:
    """The VAE."""

    def __init__(self, model: Path, family: Family, device: torch.device, *, code: FamilyCode) -> None:
        """bfloat16 on a GPU; float32 on the CPU, where bfloat16 is slow. `pixels`: edge of a latent's picture."""
        dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
        self._vae = load_frozen(imported(family.autoencoder), model / VAE, device, dtype=dtype, low_cpu_mem_usage=False)
        self._device, self._dtype, self._latents = device, dtype, code.latents
        self.pixels, self._is_video = family.grid.pixels, family.is_video

    @torch.no_grad()
    def encode(self, pictures: np.ndarray, seeds: Sequence[int] | None) -> Tensor:
        """(B, H, W, 3) uint8, or videos (B, F, H, W, 3) -> latents (B, C, h, w) bfloat16, as the family makes them.

        Where that is a sample of the latent distribution, it is a fixed one of each picture, drawn from its own seed: on
        the CPU, so that every device has the same noise; without seeds it is the mean. Latents are rounded once, at the end.

        The host waits for the GPU, three times for a batch: with the pixels, with the noise, which comes behind the VAE's
        work, and with the result. It waits for the caller's stream alone: see `OwnStream`.
        """
        return self._encode(normalized(torch.from_numpy(pictures).to(self._device), self._dtype), seeds)

    @torch.no_grad()
    def encode_reference(self, pictures: np.ndarray) -> Tensor:
        """(B, H, W, 3) uint8 -> their mean latents (B, C, h, w) bfloat16.

        Of (B, H, W, 4) it is (B, C + p^2, h, w), where a latent's picture has p x p pixels: first the mean latents of the
        pictures, which are grey where they are transparent; then 1 for each pixel that is, row by row.
        """
        if pictures.shape[-1] == _RGB:
            return self.encode(pictures, None)
        given = torch.from_numpy(pictures).to(self._device)
        hole = given[..., 3] < _OPAQUE / 2
        latents = self._encode(normalized(given[..., :3], self._dtype) * ~hole[..., None], None)
        size, (height, width) = self.pixels, latents.shape[2:]
        pixels = hole.reshape(len(given), height, size, width, size).permute(0, 2, 4, 1, 3)
        return torch.cat([latents, pixels.reshape(len(given), size**2, height, width).to(latents).cpu()], dim=1)

    def _encode(self, pixels: Tensor, seeds: Sequence[int] | None) -> Tensor:
        def draw(shape: Sequence[int]) -> Tensor:
            if seeds is None:
                return torch.zeros(len(pixels), *shape, device=self._device)
            each = [torch.randn(tuple(shape), generator=torch.Generator().manual_seed(seed)) for seed in seeds]
            return torch.stack(each).to(self._device)

        given = pixels.movedim(-1, 1)
        if self._is_video and given.ndim == _PICTURE_AXES:
            given = given[:, :, None]
        latents = self._latents.encode(self._vae, given, draw)
        return latents.to(torch.bfloat16).cpu()


def normalized(pictures: Tensor, dtype: torch.dtype) -> Tensor:
    """0..255 -> -1..1, rounded once: in bfloat16 by a quarter of a grey level at most, where two roundings are a half."""
    return (pictures.float() / 127.5 - 1.0).to(dtype)


def load_frozen(kind: Any, folder: Path, device: torch.device | str, **options: Any) -> Any:
    """A network that is not trained, by its class of diffusers or transformers. Raises ConfigurationError, StorageError."""
    with loading(folder):
        encoder = kind.from_pretrained(folder, local_files_only=True, **options)
    return encoder.to(device).eval().requires_grad_(requires_grad=False)


def stream(network: Any, device: torch.device) -> None:
    """Keep a network's weights in the node's memory; each layer's come to the device while it works."""
    from accelerate import cpu_offload, hooks  # noqa: PLC0415 - seldom needed
    from accelerate.utils import set_module_tensor_to_device  # noqa: PLC0415

    # Else it empties the allocator's cache after each tensor, and so takes from training what that is about to use again,
    # and has the GPU wait each time.
    vars(hooks)["set_module_tensor_to_device"] = partial(set_module_tensor_to_device, clear_cache=False)
    cpu_offload(network, execution_device=device)
