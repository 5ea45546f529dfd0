"""Sizes and crops."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oarlock_api.dataset import CropAspect, CropStyle, ResolutionType
from oarlock_trainer.data.buckets import (
    Size,
    alignment,
    crop_aspect,
    cut,
    is_below,
    target_size,
    upscale_percent,
)


@pytest.mark.parametrize(
    ("aspect", "resolution", "kind", "expected"),
    [
        (1.0, 1024, ResolutionType.PIXEL_AREA, Size(1024, 1024)),
        (1.78, 1024, ResolutionType.PIXEL_AREA, Size(1344, 768)),
        (0.56, 1024, ResolutionType.PIXEL_AREA, Size(768, 1344)),
        (1.0, 1.0, ResolutionType.AREA, Size(1024, 1024)),
        (1.5, 512, ResolutionType.PIXEL, Size(768, 512)),
        (0.67, 512, ResolutionType.PIXEL, Size(512, 768)),
        (1.5, 64, ResolutionType.PIXEL_AREA, Size(80, 48)),
    ],
)
def test_the_bucket_of_an_aspect(aspect: float, resolution: float, kind: ResolutionType, expected: Size) -> None:
    assert target_size(aspect, resolution=resolution, kind=kind) == expected


@given(
    st.tuples(st.integers(1, 5000), st.integers(1, 5000)),
    st.floats(64, 2048),
    st.sampled_from(list(CropStyle)),
    st.tuples(st.floats(0, 1, exclude_max=True), st.floats(0, 1, exclude_max=True)),
)
def test_a_cut_lies_within_the_scaled_picture_and_has_the_buckets_size(
    sides: tuple[int, int], edge: float, style: CropStyle, draws: tuple[float, float]
) -> None:
    aspect = min(max(sides[0] / sides[1], 0.05), 20.0)
    target = target_size(aspect, resolution=edge, kind=ResolutionType.PIXEL)
    found = cut(Size(*sides), target, style=style, draws=draws)
    assert 0 <= found.left <= found.scaled.width - target.width
    assert 0 <= found.top <= found.scaled.height - target.height
    assert target.width % alignment(edge) == target.height % alignment(edge) == 0


def test_a_center_crop_leaves_as_much_on_both_sides() -> None:
    found = cut(Size(200, 100), Size(64, 64), style=CropStyle.CENTER, draws=(0.0, 0.0))
    assert (found.scaled, found.left, found.top) == (Size(128, 64), 32, 0)


def test_closest_chooses_by_ratio_not_by_difference() -> None:
    assert crop_aspect(Size(100, 210), aspect=CropAspect.CLOSEST, choices=(1.0, 0.5, 2.0), draw=0.0) == 0.5


def test_limits_are_in_the_unit_of_the_resolution() -> None:
    assert is_below(Size(500, 2000), 512, ResolutionType.PIXEL)
    assert not is_below(Size(500, 2000), 512, ResolutionType.PIXEL_AREA)
    assert is_below(Size(500, 500), 1.0, ResolutionType.AREA)


def test_a_picture_that_has_to_shrink_is_not_upscaled() -> None:
    assert upscale_percent(Size(2000, 2000), Size(1024, 1024)) == 0.0
    assert upscale_percent(Size(512, 512), Size(1024, 1024)) == pytest.approx(100.0)
