"""Sizes and crops, of one picture and of many."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oarlock_api.dataset import CropAspect, CropStyle, ResolutionType, SizeLimits
from oarlock_api.weights import ModelFamily
from oarlock_trainer.data.buckets import (
    Cut,
    Size,
    crop_aspects,
    cuts,
    is_below,
    target_sizes,
    upscale_percent,
)
from oarlock_trainer.models.families import FAMILIES

KINDS = st.sampled_from(list(ResolutionType))
SIDES = st.tuples(st.integers(1, 5000), st.integers(1, 5000))
LIMITS = st.sampled_from([SizeLimits(), SizeLimits(maximum=300.0, downsample_to=200.0)])
DRAWS = st.floats(0, 1, exclude_max=True)
CHOICES = (1.0, 1.5, 0.67, 1.78)
"""Of the table's pictures that are cut to the closest aspect."""


def target_of(aspect: float, resolution: float, kind: ResolutionType) -> tuple[np.ndarray, np.ndarray]:
    return target_sizes([aspect], resolution=resolution, kind=kind, step=64)


def cut(
    sides: tuple[int, int],
    target: tuple[int, int],
    *,
    style: CropStyle = CropStyle.CENTER,
    draws: tuple[float, float] = (0.0, 0.0),
    limits: SizeLimits | None = None,
    kind: ResolutionType = ResolutionType.PIXEL_AREA,
) -> Cut:
    many = cuts(
        (np.array([sides[0]]), np.array([sides[1]])), (np.array([target[0]]), np.array([target[1]])), style=style,
        draws=draws, limits=limits or SizeLimits(), kind=kind,
    )  # fmt: skip
    return many.one(0)


@pytest.mark.parametrize(
    ("aspect", "resolution", "kind", "expected"),
    [
        (1.0, 1024, ResolutionType.PIXEL_AREA, (1024, 1024)),
        (1.78, 1024, ResolutionType.PIXEL_AREA, (1344, 768)),
        (0.56, 1024, ResolutionType.PIXEL_AREA, (768, 1344)),
        (1.0, 1.0, ResolutionType.AREA, (1024, 1024)),
        (1.5, 512, ResolutionType.PIXEL, (768, 512)),
        (0.67, 512, ResolutionType.PIXEL, (512, 768)),
        (1.5, 64, ResolutionType.PIXEL_AREA, (80, 48)),
        (0.0002, 64, ResolutionType.PIXEL_AREA, (16, 640)),
    ],
)
def test_the_bucket_of_an_aspect(
    aspect: float, resolution: float, kind: ResolutionType, expected: tuple[int, int]
) -> None:
    width, height = target_of(aspect, resolution, kind)
    assert (width[0], height[0]) == expected


@given(SIDES, st.floats(64, 2048), st.sampled_from(list(CropStyle)), st.tuples(DRAWS, DRAWS), LIMITS)
def test_a_cut_lies_within_the_scaled_picture_and_has_the_buckets_size(
    sides: tuple[int, int], edge: float, style: CropStyle, draws: tuple[float, float], limits: SizeLimits
) -> None:
    width, height = target_of(sides[0] / sides[1], edge, ResolutionType.PIXEL)
    found = cut(sides, (width[0], height[0]), style=style, draws=draws, limits=limits)
    assert 0 <= found.left <= found.scaled.width - found.target.width
    assert 0 <= found.top <= found.scaled.height - found.target.height
    assert found.target.width % 16 == found.target.height % 16 == 0


@given(
    st.lists(st.tuples(SIDES, DRAWS, DRAWS, DRAWS), min_size=1, max_size=20), KINDS, st.sampled_from(list(CropStyle))
)
def test_many_pictures_are_cut_as_each_of_them_alone(
    pictures: list[tuple[tuple[int, int], float, float, float]], kind: ResolutionType, style: CropStyle
) -> None:
    limits = SizeLimits(maximum=900.0, downsample_to=700.0)

    def made(some: list[tuple[tuple[int, int], float, float, float]]) -> list[Cut]:
        size = np.array([sides[0] for sides, *_ in some]), np.array([sides[1] for sides, *_ in some])
        draws = np.array([rest for _, *rest in some])
        choices = (0.5, 1.0, 1.78)
        aspects = crop_aspects(*size, aspect=CropAspect.RANDOM, choices=choices, draws=draws[:, 0])
        resolution = 0.6 if kind is ResolutionType.AREA else 640.0
        target = target_sizes(aspects, resolution=resolution, kind=kind, step=32, upright=np.less(*size))
        many = cuts(size, target, style=style, draws=(draws[:, 1], draws[:, 2]), limits=limits, kind=kind)
        return [many.one(number) for number in range(len(some))]

    assert made(pictures) == [made([one])[0] for one in pictures]


def test_a_center_crop_leaves_as_much_on_both_sides() -> None:
    found = cut((200, 100), (64, 64))
    assert (found.scaled, found.left, found.top) == (Size(128, 64), 32, 0)


def test_a_picture_above_the_maximum_is_scaled_to_the_smaller_size_and_cropped_from_it() -> None:
    limits = SizeLimits(maximum=2048.0, downsample_to=1536.0)
    assert cut((3000, 3000), (1024, 1024), limits=limits).scaled == Size(1536, 1536)
    assert cut((2048, 2048), (1024, 1024), limits=limits).scaled == Size(1024, 1024)


def test_a_picture_above_the_maximum_still_covers_its_target() -> None:
    limits = SizeLimits(maximum=600.0, downsample_to=512.0)
    assert cut((3000, 3000), (1024, 1024), limits=limits).scaled == Size(1024, 1024)


def test_the_maximum_of_a_shorter_edge_is_one_of_the_shorter_edge() -> None:
    limits = SizeLimits(maximum=1000.0, downsample_to=500.0)
    assert cut((4000, 1001), (256, 64), limits=limits, kind=ResolutionType.PIXEL).scaled == Size(1998, 500)
    assert cut((4000, 1000), (256, 64), limits=limits, kind=ResolutionType.PIXEL).scaled == Size(256, 64)


def test_closest_chooses_by_difference_as_simpletuner() -> None:
    found = crop_aspects([100, 300], [137, 150], aspect=CropAspect.CLOSEST, choices=(1.0, 0.5, 2.0), draws=0.0)
    assert found.tolist() == [0.5, 2.0]


def test_from_128_pixels_on_every_bucket_is_simpletuners() -> None:
    # Made by support/simpletuner_buckets.py, by SimpleTuner's own functions.
    rows = [
        line.split("\t") for line in (Path(__file__).parent / "simpletuner-buckets.tsv").read_text().splitlines()[1:]
    ]
    assert len(rows) > 4500
    wrong = []
    for family, resolution, kind, crop, *sides in rows:
        wide, high, *theirs = map(int, sides)
        aspects = crop_aspects([wide], [high], aspect=CropAspect(crop), choices=CHOICES, draws=0.0)
        step = FAMILIES[ModelFamily(family)].grid.bucket
        found = target_sizes(
            aspects, resolution=float(resolution), kind=ResolutionType(kind), step=step, upright=[wide < high]
        )
        if [int(side[0]) for side in found] != theirs:
            wrong.append((family, resolution, kind, crop, wide, high, theirs, [int(side[0]) for side in found]))
    assert wrong == []


def test_limits_are_in_the_unit_of_the_resolution() -> None:
    sizes = [500, 500, 1000], [2000, 500, 1000]
    assert is_below(*sizes, minimum=512, kind=ResolutionType.PIXEL).tolist() == [True, True, False]
    assert is_below(*sizes, minimum=512, kind=ResolutionType.PIXEL_AREA).tolist() == [False, True, False]
    assert is_below(*sizes, minimum=1.0, kind=ResolutionType.AREA).tolist() == [False, True, False]


def test_a_picture_that_has_to_shrink_is_not_upscaled() -> None:
    assert upscale_percent((2000, 2000), (1024, 1024)) == 0.0
    assert upscale_percent((512, 512), (1024, 1024)) == pytest.approx(100.0)
