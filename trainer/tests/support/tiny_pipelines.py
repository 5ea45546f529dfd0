"""A family's tiny model, in diffusers' own pipeline and in ours; and what differs between the families there.

A new family has its record in a module beside this one, and its line in RECORDS (family_pipelines.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import diffusers
import numpy as np
import torch

from oarlock_api.engine import Attention
from oarlock_api.weights import Model
from oarlock_trainer.models import transformer
from oarlock_trainer.models.compute.attention import attend_with
from oarlock_trainer.models.encoders import PictureEncoder
from oarlock_trainer.models.families import family_of
from oarlock_trainer.models.family_codes import code_of
from oarlock_trainer.models.objective.loss import MicroBatch
from oarlock_trainer.validation.sampling import Text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from torch import Tensor

    from oarlock_api.weights import ModelFamily, ModelFlavor
    from oarlock_trainer.models.family import Family
    from oarlock_trainer.models.family_code import CaptionEncoder, FamilyCode

CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """A picture, or a video of more than one frame, that is drawn with guidance."""

    scale: float
    frames: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What differs between families. `pipeline` is an instance of diffusers' class."""

    key: ModelFamily
    flavor: ModelFlavor
    pipeline: str
    tiny: Any
    """The module that writes the tiny model."""
    files: int
    """That it has at least."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Of writing a variant that has no command of its own."""
    texts: Callable[[Any, list[str]], tuple[Sequence[Tensor], Tensor | None]]
    """(pipeline, captions) -> a text (T, t) of each as the pipeline makes it, and pooled vectors (B, p)."""
    is_padded: bool = True
    """Texts have the full length, and padding is a part of them."""
    has_zeros: bool = False
    """Padding is zeros."""
    is_rounded: bool = False
    """The encoder adds up in another order than the pipeline does: a text is near its own, and not the same."""
    of_nothing: int
    """Tokens of an empty caption that are no padding."""
    streamed: str
    """The encoder's attribute of the network whose weights may stay in the node's memory."""
    latents: Callable[[Any, np.ndarray, Tensor], Tensor]
    """(pipeline, pixels (B, h, w, 3) or (B, frames, h, w, 3), noise as latents) -> latents of the training's pictures."""
    near: float
    """How far a latent may be from the pipeline's own: it is rounded to bfloat16."""
    frames: tuple[int, ...] = (1,)
    """Of what is encoded."""
    zeros: tuple[tuple[int, int], ...] = ((8, 12),)
    """Height and width of latents in steps on zeros."""
    predicted: Callable[[Any, Any, Tensor, MicroBatch], Tensor]
    """(pipeline, transformer, noisy, batch) -> what the pipeline takes of the transformer's answer, as a velocity."""
    batches: tuple[Mapping[str, Any], ...] = ({},)
    """Arguments of `batch` for the loss."""
    shift: Callable[[Any, int], float]
    """(pipeline, image tokens) -> how much it shifts noise levels."""
    shifted: tuple[int, ...] = (16, 256, 1024, 4096)
    """Image tokens."""
    draws: tuple[Drawn, ...]
    steps: int = 4
    negative: str = "the surface of the moon"
    """Nothing: the pipeline takes no other one."""
    scale: str = "guidance_scale"
    """The pipeline's argument."""
    is_told: bool = False
    """Guidance is an input of the model."""


def own_lengths(found: Tensor, mask: Tensor | None) -> list[Tensor]:
    """Texts without what stands for padding."""
    lengths = [found.shape[1]] * len(found) if mask is None else mask.sum(dim=1).tolist()
    return [text[:length] for text, length in zip(found, lengths, strict=True)]


def shown(pixels: np.ndarray) -> Tensor:
    """(B, 3, h, w), or (B, 3, frames, h, w), of -1 .. 1."""
    return torch.from_numpy(np.moveaxis(pixels, -1, 1)).float() / 127.5 - 1


class Tiny:
    """A family's tiny model, with all that is made of it once."""

    def __init__(self, record: Record, folder: Path) -> None:
        self.record, self.folder = record, folder
        self.model = Model(family=record.key, flavor=record.flavor, path=str(folder))
        self.family: Family = family_of(self.model)
        self.code: FamilyCode = code_of(self.model)

    @cached_property
    def pipeline(self) -> Any:
        found = getattr(diffusers, self.record.pipeline).from_pretrained(self.folder, dtype=torch.float32)
        found.set_progress_bar_config(disable=True)
        return found

    @cached_property
    def installed(self) -> Any:
        """The same transformer as jobs load it, in float32."""
        return self.ours(transformer.load(self.folder).float())

    @cached_property
    def captions(self) -> CaptionEncoder:
        return self.code.caption_encoder(self.folder, self.record.flavor, CPU)

    @cached_property
    def pictures(self) -> PictureEncoder:
        return PictureEncoder(self.folder, self.family, CPU, code=self.code)

    def ours(self, model: Any, *, recomputed: int = 0) -> Any:
        """The model, with our forward pass installed."""
        self.code.install(model, attend=attend_with(Attention.SDPA), recomputed=recomputed)
        return model

    def texts(self, captions: Sequence[str]) -> list[Text]:
        """As the pipeline makes them."""
        pipeline = self.pipeline
        # As the encoder does: with gradients some processors take other kernels, which round otherwise.
        with torch.inference_mode():
            sequences, pooled = self.record.texts(pipeline, list(captions))
        pooled = torch.zeros(len(captions), 0) if pooled is None else pooled
        return [
            Text(sequence=one[None].clone(), pooled=vector[None].clone())
            for one, vector in zip(sequences, pooled, strict=True)
        ]

    def batch(self, *, lengths: tuple[int, ...] = (9, 9), masked: bool = False, frames: int = 1) -> MicroBatch:
        """A micro-batch as a rank makes it; `frames`: of latents."""
        source = torch.Generator().manual_seed(1)
        shape = self.family.architecture(self.pipeline.transformer.config)
        size = len(lengths)

        def random(*own: int) -> Tensor:
            return torch.randn(size, *own, generator=source)

        return MicroBatch(
            latents=random(shape.latent_channels * frames, 6, 8), noise=random(shape.latent_channels * frames, 6, 8),
            text=random(max(lengths), shape.text_width), pooled=random(shape.pooled_width),
            sigmas=torch.linspace(0.2, 0.9, size), guidance=torch.linspace(1.0, 3.5, size),
            text_mask=torch.tensor(lengths)[:, None] > torch.arange(max(lengths)) if masked else None,
        )  # fmt: skip

    @property
    def has_guidance(self) -> bool:
        return self.family.architecture(self.pipeline.transformer.config).has_guidance
