"""What a model family computes in its own way, with torch. `family_codes` has that of each family.

B samples, latents (B, C, h, w), texts (B, T, t) and their pooled vectors (B, p). A video has its latent frames among the
channels: C stands for channels x frames there, all frames of a channel behind each other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, nn

from oarlock_trainer.models.guidance import along

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np

    from oarlock_api.weights import ModelFlavor
    from oarlock_trainer.models.compute.attention import Attend
    from oarlock_trainer.models.guidance import Guide
    from oarlock_trainer.models.latents import Latents


class Velocity(Protocol):
    """The direction from the picture to the noise that a transformer, bare or wrapped, sees."""

    def __call__(
        self,
        model: nn.Module,
        noisy: Tensor,
        sigmas: Tensor,
        *,
        text: Tensor,
        pooled: Tensor,
        text_mask: Tensor | None,
        guidance: Tensor | None,
    ) -> Tensor:
        """(B, C, h, w) in the model's type, of `noisy` (B, C, h, w) float32 at noise levels `sigmas` (B,), 0..1.

        `text` has the model's type; what else goes into the model is rounded as the family's pipeline rounds it. `text_mask`
        (B, T) bool, True where a token is seen; `guidance` (B,), None where the model is told none. Nothing is read back
        from the GPU.

        Where a flavor takes a reference there is one more argument, which is given where there is one: `reference`
        (B, R, h', w'), what `family.Reference` makes of a second picture, without noise.
        """
        ...


class Install(Protocol):
    """Sets the forward pass of a transformer of diffusers, and of its blocks, on the instance."""

    def __call__(self, transformer: Any, *, attend: Attend, recomputed: int) -> None:
        """`transformer.forward.recomputed` is the number of its first blocks that keep no activations, and may be set."""
        ...


class CaptionEncoder(Protocol):
    """The text encoders with their tokenizers, on a device."""

    tokens: int
    """Of a text, padding included."""

    def encode(self, captions: Sequence[str]) -> tuple[Tensor, Tensor, list[int]]:
        """Texts (B, T, t) and pooled (B, p), bfloat16 on the CPU, and how many of T are no padding."""
        ...


class MakeCaptionEncoder(Protocol):
    """Loads the text encoders."""

    def __call__(
        self, model: Path, flavor: ModelFlavor, device: torch.device, *, streamed: bool = False
    ) -> CaptionEncoder:
        """With `streamed` large weights stay in the node's memory, and each layer's come to the device while it works."""
        ...


class SeeingEncoder(Protocol):
    """The text encoder of a flavor with `sight`, which is given a reference beside each caption, on a device."""

    def encode(self, captions: Sequence[str], references: Sequence[np.ndarray]) -> tuple[Tensor, Tensor, list[int]]:
        """As a CaptionEncoder's; references (H, W, 3) uint8, each of the size that `Sight.size` says."""
        ...


class MakeSeeingEncoder(Protocol):
    """Loads it."""

    def __call__(self, model: Path, flavor: ModelFlavor, device: torch.device) -> SeeingEncoder:
        """All of it comes to the device."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FamilyCode:
    """What one family computes."""

    velocity: Velocity
    install: Install
    caption_encoder: MakeCaptionEncoder
    latents: Latents
    """How they are made of pictures, and turned back."""
    set_noise_levels: Callable[[Any, int, int], None]
    """(scheduler of the model, steps, image tokens): as diffusers' pipeline of the family does before its first step."""
    write_tiny: Callable[[Path], None]
    """Writes a model of the real layout and classes with tiny random weights: the same bytes each time."""
    variants: Mapping[ModelFlavor, FamilyCode] = field(default_factory=dict)
    """Of flavors that compute something in another way."""
    seeing_encoder: MakeSeeingEncoder | None = None
    """Of flavors with `sight`, if the family has such."""
    guide: Guide = along
    """How two passes become the direction of a step, as in the pipeline."""
