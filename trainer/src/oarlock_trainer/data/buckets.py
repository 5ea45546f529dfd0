"""Which size a picture is trained at, and which part of it.

A picture is scaled until it covers its bucket's size, and what stands over is cropped. Sizes follow SimpleTuner: the
aspect (width / height) is rounded to two decimals, both sides to a multiple of the alignment.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from oarlock_api.dataset import CropAspect, CropStyle, ResolutionType

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True, order=True)
class Size:
    """Width and height in pixels."""

    width: int
    height: int

    @property
    def aspect(self) -> float:
        """Width / height, rounded to two decimals."""
        return round(self.width / self.height, 2)


@dataclass(frozen=True, slots=True)
class Cut:
    """Scale a picture to `scaled`, then keep the `target`-sized part at (left, top)."""

    scaled: Size
    left: int
    top: int
    target: Size


def edge_length(resolution: float, kind: ResolutionType) -> float:
    """Edge in pixels of the square with a resolution's area; for Pixel the shorter edge itself."""
    return math.sqrt(resolution * 1e6) if kind is ResolutionType.AREA else float(resolution)


def alignment(edge: float) -> int:
    """Pixels that both sides are a multiple of.

    FLUX.1 needs 16 (VAE factor 8, patches of 2). SimpleTuner's 64 keeps the number of shapes small; below 512 pixels
    it could no longer tell one aspect from the next.
    """
    return 64 if edge >= 512 else 16


def target_size(aspect: float, *, resolution: float, kind: ResolutionType) -> Size:
    """Size of the bucket of an aspect."""
    edge = edge_length(resolution, kind)
    step = alignment(edge)
    aspect = round(aspect, 2)
    if kind is ResolutionType.PIXEL:
        width, height = (edge * aspect, edge) if aspect >= 1 else (edge, edge / aspect)
    else:
        width, height = edge * math.sqrt(aspect), edge / math.sqrt(aspect)
    return Size(*(max(math.floor(side / step + 0.5), 1) * step for side in (width, height)))


def crop_aspect(original: Size, *, aspect: CropAspect, choices: Sequence[float], draw: float) -> float:
    """Aspect that a picture is cut to; `draw` in [0, 1) decides where the choice is random."""
    if aspect is CropAspect.SQUARE:
        return 1.0
    if aspect is CropAspect.CLOSEST:
        return min(choices, key=lambda choice: abs(math.log(choice) - math.log(original.width / original.height)))
    if aspect is CropAspect.RANDOM:
        return choices[int(draw * len(choices))]
    return original.width / original.height


def cut(original: Size, target: Size, *, style: CropStyle, draws: tuple[float, float]) -> Cut:
    """Scale and crop for one picture; `draws` in [0, 1) place a random crop."""
    scale = max(target.width / original.width, target.height / original.height)
    scaled = Size(max(target.width, round(original.width * scale)), max(target.height, round(original.height * scale)))
    spare = (scaled.width - target.width, scaled.height - target.height)
    shares = {CropStyle.CENTER: (0.5, 0.5), CropStyle.CORNER: (0.0, 0.0)}.get(style, draws)
    left, top = (min(int(share * (free + 1)), free) for share, free in zip(shares, spare, strict=True))
    if style is CropStyle.CENTER:
        left, top = spare[0] // 2, spare[1] // 2
    return Cut(scaled, left, top, target)


def upscale_percent(original: Size, target: Size) -> float:
    """By how many percent a picture has to grow to cover its bucket; 0 where it has to shrink."""
    return max(max(target.width / original.width, target.height / original.height) - 1.0, 0.0) * 100.0


def is_below(original: Size, minimum: float, kind: ResolutionType) -> bool:
    """Tell whether a picture is smaller than a minimum in the unit of the resolution."""
    if kind is ResolutionType.PIXEL:
        return min(original.width, original.height) < minimum
    edge = edge_length(minimum, kind)
    return original.width * original.height < edge * edge
