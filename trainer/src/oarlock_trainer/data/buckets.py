"""Which size a picture is trained at, and which part of it: for one picture, and for millions at once.

A picture is scaled until it covers its bucket's size, and what stands over is cropped. From 128 pixels on, buckets have
SimpleTuner's sizes (trainer/tests/data/simpletuner-buckets.tsv). All functions take numbers or numpy arrays of one length, in
pixels, and compute the same for either.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from oarlock_api.dataset import CropAspect, CropStyle, ResolutionType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike

    from oarlock_api.dataset import SizeLimits

_USUAL_EDGES = {0.25: 512, 0.5: 768, 1.0: 1024, 2.0: 1536, 4.0: 2048}
"""Megapixels -> edge, for areas that are less than _NEAR apart."""
_NEAR = 0.05
_LEAST_STEP = 16
"""Pixels: a multiple of every family's `grid.edge`."""
_LEAST_ASPECT = 0.01
"""What rounding leaves of a strip a hundred times higher than wide: it gets a bucket of its own, not a division by 0."""


@dataclass(frozen=True, slots=True, order=True)
class Size:
    """Width and height in pixels, and how many frames: 1 is a picture."""

    width: int
    height: int
    frames: int = 1

    def __str__(self) -> str:
        frames = f"x{self.frames}" if self.frames > 1 else ""
        return f"{self.width}x{self.height}{frames}"

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

    def at(self, size: Size) -> Cut:
        """The same part of the picture, made `size` large. Of the same size it is the same cut."""
        wide, high = size.width / self.target.width, size.height / self.target.height
        scaled = Size(
            max(round(self.scaled.width * wide), size.width), max(round(self.scaled.height * high), size.height)
        )
        left = min(round(self.left * wide), scaled.width - size.width)
        return Cut(scaled, left, min(round(self.top * high), scaled.height - size.height), size)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cuts:
    """The cuts of n pictures, as int64 arrays (n,)."""

    scaled_width: np.ndarray
    scaled_height: np.ndarray
    left: np.ndarray
    top: np.ndarray
    target_width: np.ndarray
    target_height: np.ndarray

    def one(self, number: int) -> Cut:
        """One of them."""
        scaled = Size(int(self.scaled_width[number]), int(self.scaled_height[number]))
        target = Size(int(self.target_width[number]), int(self.target_height[number]))
        return Cut(scaled, int(self.left[number]), int(self.top[number]), target)

    def numbers(self) -> np.ndarray:
        """(n, 6) uint32, little-endian: what a cut says, as a part of content keys."""
        sides = (self.scaled_width, self.scaled_height, self.left, self.top, self.target_width, self.target_height)
        return np.stack(sides, axis=1).astype("<u4")


def codes(width: np.ndarray, height: np.ndarray, frames: np.ndarray) -> np.ndarray:
    """(n,) uint64 of sizes, in whose order they are; sides below 2^24, frames below 2^16."""
    wide, high, many = (one.astype(np.uint64) for one in (width, height, frames))
    return np.asarray(wide << np.uint64(40) | high << np.uint64(16) | many)


def size_of(code: int) -> Size:
    """What a code of `codes` stands for."""
    return Size(code >> 40, code >> 16 & 0xFFFFFF, code & 0xFFFF)


def edge_length(resolution: float, kind: ResolutionType) -> float:
    """Edge in pixels of the square with a resolution's area; for Pixel the shorter edge itself."""
    return math.sqrt(resolution * 1e6) if kind is ResolutionType.AREA else float(resolution)


def square_edge(resolution: float, kind: ResolutionType) -> float:
    """Edge in pixels of what is square at a resolution. SimpleTuner takes areas near round megapixels for usual edges."""
    if kind is ResolutionType.PIXEL:
        return float(resolution)
    megapixels = resolution if kind is ResolutionType.AREA else resolution**2 / 1e6
    usual = (edge for area, edge in _USUAL_EDGES.items() if abs(megapixels - area) < _NEAR)
    return float(next(usual, math.sqrt(megapixels * 1e6)))


def alignment(edge: float, step: int) -> int:
    """Pixels that both sides of buckets are a multiple of, where squares have this edge; `step`: the family's.

    Below 128 pixels, where nobody trains but to try a job out, SimpleTuner's steps could not tell one aspect from the next.
    """
    return step if edge >= 128 else _LEAST_STEP


def target_sizes(
    aspects: ArrayLike, *, resolution: float, kind: ResolutionType, step: int, upright: ArrayLike | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Widths and heights of the buckets of aspects, rounded to two decimals. `step`: of the family, as of `alignment`.

    `upright`: whether the pictures themselves are, where they are cut to other aspects: of those, a Pixel resolution
    is the width, and of all others the height.
    """
    square = square_edge(resolution, kind)
    step = alignment(square, step)
    rounded = np.maximum(np.round(np.asarray(aspects, dtype=np.float64), 2), _LEAST_ASPECT)
    if kind is ResolutionType.PIXEL:
        is_upright = rounded < 1.0 if upright is None else np.asarray(upright)
        wide = np.where(is_upright, square, np.trunc(square * rounded))
        high = np.where(is_upright, np.trunc(square / rounded), square)
    else:
        edge = _multiple(math.trunc(edge_length(resolution, kind)), step)
        wide, high = edge * np.sqrt(rounded), edge / np.sqrt(rounded)
    width, height = _multiple(wide, step), _multiple(high, step)
    # A Pixel resolution is its square's edge as it stands; for the grids of all families, of 16 pixels at most.
    edge = _multiple(square, _LEAST_STEP if kind is ResolutionType.PIXEL else step)
    is_square = np.round(width / height, 2) == 1.0
    return np.where(is_square, edge, width), np.where(is_square, edge, height)


def _multiple(side: ArrayLike, step: int) -> np.ndarray:
    """The nearest multiple of the step, halves to the even one; the step at least."""
    return np.maximum(np.rint(np.asarray(side) / step), 1).astype(np.int64) * step


def crop_aspects(
    width: ArrayLike, height: ArrayLike, *, aspect: CropAspect, choices: Sequence[float], draws: ArrayLike
) -> np.ndarray:
    """Aspects that pictures are cut to; `draws` in [0, 1) decide where the choice is random."""
    own = np.asarray(width, dtype=np.float64) / np.asarray(height, dtype=np.float64)
    listed = np.asarray(choices, dtype=np.float64)
    if aspect is CropAspect.SQUARE:
        return np.ones_like(own)
    if aspect is CropAspect.CLOSEST:
        # The last axis holds the choices, at most 64: 32 MiB for a part of the table.
        apart = np.abs(np.round(own, 2)[..., None] - listed)
        return np.asarray(listed[np.argmin(apart, axis=-1)])
    if aspect is CropAspect.RANDOM:
        return np.asarray(listed[(np.asarray(draws) * len(choices)).astype(np.int64)])
    return own


def cuts(
    size: tuple[ArrayLike, ArrayLike],
    target: tuple[np.ndarray, np.ndarray],
    *,
    style: CropStyle,
    draws: tuple[ArrayLike, ArrayLike],
    limits: SizeLimits,
    kind: ResolutionType,
) -> Cuts:
    """Scale and crop of pictures; `draws` in [0, 1) place a random crop.

    A picture is scaled to just cover its target. One above `limits.maximum` is scaled to `limits.downsample_to` instead,
    so that the crop shows a part of it; it still covers its target.
    """
    width, height = (np.asarray(side, dtype=np.int64) for side in size)
    scale = np.maximum(target[0] / width, target[1] / height)
    if limits.maximum is not None and limits.downsample_to is not None:
        measured = measure(width, height, kind)
        larger = edge_length(limits.downsample_to, kind) / measured
        scale = np.where(measured > edge_length(limits.maximum, kind), np.maximum(scale, larger), scale)
    scaled = [
        np.maximum(least, np.rint(side * scale).astype(np.int64))
        for least, side in zip(target, (width, height), strict=True)
    ]
    places = [_place(whole - kept, style, draw) for whole, kept, draw in zip(scaled, target, draws, strict=True)]
    return Cuts(
        scaled_width=scaled[0],
        scaled_height=scaled[1],
        left=places[0],
        top=places[1],
        target_width=target[0],
        target_height=target[1],
    )


def upscale_percent(size: tuple[ArrayLike, ArrayLike], target: tuple[ArrayLike, ArrayLike]) -> np.ndarray:
    """By how many percent pictures have to grow to cover their bucket; 0 where they have to shrink."""
    (width, height), (wide, high) = ([np.asarray(side, dtype=np.float64) for side in sides] for sides in (size, target))
    return np.asarray(np.maximum(np.maximum(wide / width, high / height) - 1.0, 0.0) * 100.0)


def is_below(width: ArrayLike, height: ArrayLike, *, minimum: float, kind: ResolutionType) -> np.ndarray:
    """Tell which pictures are smaller than a minimum in the unit of the resolution."""
    return np.asarray(measure(width, height, kind) < edge_length(minimum, kind))


def measure(width: ArrayLike, height: ArrayLike, kind: ResolutionType) -> np.ndarray:
    """The edge that a resolution is compared with: the shorter one, or that of the square with a picture's area."""
    wide, high = np.asarray(width, dtype=np.float64), np.asarray(height, dtype=np.float64)
    return np.asarray(np.minimum(wide, high) if kind is ResolutionType.PIXEL else np.sqrt(wide * high))


def _place(spare: np.ndarray, style: CropStyle, draw: ArrayLike) -> np.ndarray:
    """Where a crop begins, in 0 .. `spare`."""
    if style is CropStyle.CENTER:
        return spare // 2
    if style is CropStyle.CORNER:
        return np.zeros_like(spare)
    return np.asarray(np.minimum((np.asarray(draw) * (spare + 1)).astype(np.int64), spare))
