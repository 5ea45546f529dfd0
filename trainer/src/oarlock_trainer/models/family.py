"""What a model family says of itself: data, and what is computed of data without torch.

Everything outside a family's folder asks this record; `families` has that of each value of training.model.family. What a
family computes with torch stands in `family_code`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from math import sqrt
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from oarlock_api.weights import ModelFlavor
    from oarlock_trainer.models.architecture import Architecture
    from oarlock_trainer.models.encoded import Encoded

TRANSFORMER = "transformer"
"""The folder and the name of what is trained, in diffusers' layout."""
MODEL_INDEX = "model_index.json"
"""The file with the pipeline's class and its parts."""
VAE = "vae"
SCHEDULER = "scheduler"


@dataclass(frozen=True, slots=True)
class ClassName:
    """A class of diffusers, which is imported only where it is needed (classes.py)."""

    module: str
    name: str


class Reference(StrEnum):
    """What a second picture is to a model."""

    BEHIND = "behind"
    """Its latents are tokens of their own, behind the picture's."""
    BESIDE = "beside"
    """Its latents are channels beside the noise's, in the same tokens."""
    HOLES = "holes"
    """What is transparent in it is to be filled in: latents of the rest, and the holes, are channels beside the noise's."""

    @property
    def pictures(self) -> int:
        """Of how many pictures it adds the tokens."""
        return int(self is Reference.BEHIND)

    @property
    def is_beside(self) -> bool:
        """Whether it is in further channels of the picture's own tokens: such a model is never without."""
        return self is not Reference.BEHIND

    def channels(self, latents: int, grid: Grid) -> int:
        """Of a reference where a picture has so many `latents`: a hole has a channel for each pixel of a latent."""
        return latents + (grid.pixels**2 if self is Reference.HOLES else 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """The text encoder sees the reference beside each caption: in the reference's shape, at a size of its own."""

    area: int
    """About so many pixels."""
    edge: int
    """Pixels: both sides are a multiple of it."""

    def size(self, width: int, height: int) -> tuple[int, int]:
        """Width and height of what is seen of a reference of this size, all in pixels."""
        aspect = width / height
        wide = sqrt(self.area * aspect)
        return self._rounded(wide), self._rounded(wide / aspect)

    def _rounded(self, side: float) -> int:
        return max(round(side / self.edge), 1) * self.edge


@dataclass(frozen=True, slots=True, kw_only=True)
class Flavor:
    """A variant: the longest text that it was trained with, and what its own page advises for pictures."""

    text_tokens: int
    steps: int
    guidance: float
    is_guided_twice: bool = False
    """Guidance is the scale of two passes for each step, one of them with the negative prompt, and no input of the model."""
    reference: Reference | None = None
    """The model is given a second picture beside the noise, or may be."""
    sight: Sight | None = None
    """The text encoder is given it as well: what is cached of a caption is that of one reference, and never without."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """How pictures become tokens."""

    pixels: int
    """Height and width of a latent's picture."""
    patch: int
    """Height and width of a token's latents."""
    frames: int = 1
    """Frames of a latent behind the first one; 1: the family knows pictures alone."""
    bucket: int = 64
    """Pixels that sides of buckets are a multiple of, from 512 pixels on: as SimpleTuner has it for the family."""

    @property
    def edge(self) -> int:
        """Pixels: both sides of a picture are a multiple of it."""
        return self.pixels * self.patch

    def latent_frames(self, frames: int) -> int:
        """Of a video of so many frames, which are 1 + a multiple of `frames`."""
        return (frames - 1) // self.frames + 1

    def tokens(self, width: int, height: int, frames: int = 1) -> int:
        """Of a picture of this size in pixels, or of a video of so many frames."""
        return self.latent_frames(frames) * (width * height // self.edge**2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """The shift of noise levels that grows with the picture: exp(mu), mu along the line through two numbers of tokens."""

    few_tokens: int
    low: float
    many_tokens: int
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Presets:
    """Names for sets of layers in lora.targets; `default` is the one that nothing stands for."""

    names: Mapping[str, tuple[str, ...]]
    default: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TextStack:
    """The published model's text encoders, by what they cost: one large stack of layers, and others beside it.

    What stands beside is a hundredth of the work, and counted in bytes alone; "" and 0 where nothing does.
    """

    name: str
    parameters: int
    layers: int
    width: int
    heads: int
    hidden: int
    layer_parameters: int
    largest: int
    """Parameters of the largest layer: what a streamed stack has of its weights on the GPU at most."""
    beside: str
    """Their name; empty where there is none."""
    beside_parameters: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Autoencoder:
    """The published model's VAE, by what it costs."""

    parameters: int
    pixel_bytes: int
    """At the peak of a call, for each pixel of its pictures, without gradients."""
    video: int = 1
    """Of how many pictures a video takes as much, whatever its length, beside its own pixels."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Family:
    """One architecture, with all its variants."""

    name: str
    """As people write it."""
    slug: str
    """In commands, and SimpleTuner's model_family."""
    flavors: Mapping[ModelFlavor, Flavor]
    transformer: ClassName
    autoencoder: ClassName
    scheduler: ClassName
    text_encoders: tuple[str, ...]
    """Folders, and so are the tokenizers."""
    tokenizers: tuple[str, ...]
    text_classes: tuple[str, ...]
    """Of transformers."""
    grid: Grid
    shift: Shift | float
    """Of noise levels with objective.autoShift: by the picture's size, or the same for all."""
    blocks: tuple[str, ...]
    """The transformer's lists of blocks, in the order of the forward pass."""
    presets: Presets
    published: Architecture
    """Of the model that is taken where none is at hand."""
    architecture: Callable[[Mapping[str, Any]], Architecture]
    """Of a parsed transformer/config.json. Raises KeyError where a number is missing."""
    encoded: Encoded
    """By the encoders of the published model."""
    texts: TextStack
    vae: Autoencoder
    read_encoded: Callable[[Path, ModelFlavor], Encoded]
    """By a model's own encoders; what its folders do not say is the published one's."""
    pipelines: tuple[str, ...] = ()
    """Classes that model_index.json may name, where only that tells a variant's model from another's."""
    masks_text: bool = False
    """Whether padding of texts is always masked: the model knows captions of no fixed length alone."""
    foreign: Mapping[str, str] = field(default_factory=dict)
    """What model_index.json names of other models that have the same transformer, and which models those are."""
    fps: int = 0
    """Frames a second of the videos that it draws; 0 where it knows pictures alone."""
    unguided: float = 1.0
    """Scale of two passes at which the pipeline's picture is that of the prompt alone."""
    cache_mark: str = ""
    """Tells what is cached of this family from what another one makes of the same encoders; never changed."""
    variants: Mapping[ModelFlavor, Family] = field(default_factory=dict)
    """Of flavors whose published model, or its encoders, are others: their own records (`families.family_of`)."""

    def beside(self, shape: Architecture) -> Reference | None:
        """What a model of this shape has in its tokens beside the noise. Raises ValueError where no flavor has such."""
        own = shape.latent_channels * self.grid.patch**2
        more = {
            one.channels(shape.latent_channels, self.grid) * self.grid.patch**2: one
            for one in Reference
            if one.is_beside
        }
        if (channels := shape.token_channels - own) and channels not in more:
            raise ValueError(f"its tokens have {shape.token_channels} channels, of which {own} are the noise's")
        return more.get(channels)

    @property
    def is_video(self) -> bool:
        """Whether a sample may be a video; a picture is one of a single frame then."""
        return self.grid.frames > 1

    @property
    def networks(self) -> tuple[str, ...]:
        """Folders with weights."""
        return (TRANSFORMER, VAE, *self.text_encoders)

    def blocks_of(self, transformer: Any) -> list[Any]:
        """All blocks of a transformer, in the order of the forward pass."""
        return [block for name in self.blocks for block in getattr(transformer, name)]
