"""Odd pictures are shown as they are meant, or refused: never white or black in silence."""

from __future__ import annotations

import contextlib
import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from odd_pictures import GREY, ODD, RGB, RGB_ALPHA, SIDE, Odd, half_clear, png, saved, upper
from PIL import Image

from oarlock_local.pytest_tiers import examples
from oarlock_trainer.data.buckets import Cut, Size
from oarlock_trainer.data.picture_depth import depth_of
from oarlock_trainer.data.quarantine import UNREADABLE
from oarlock_trainer.preprocess.masks import decode_mask
from oarlock_trainer.preprocess.pictures import decode

SQUARE = Size(SIDE, SIDE)
WHOLE = Cut(scaled=SQUARE, left=0, top=0, target=SQUARE)


def ramp(low: int, high: int, *, across: bool) -> np.ndarray:
    levels = np.linspace(low, high, SIDE).round().astype(np.uint8)[None, :] * np.ones((SIDE, 1), dtype=np.uint8)
    return np.ascontiguousarray(levels if across else levels.T)


RAMPS = st.builds(ramp, st.integers(0, 255), st.integers(0, 255), across=st.booleans())


@pytest.mark.parametrize("kind", ODD.values(), ids=ODD)
@given(levels=RAMPS)
@settings(max_examples=examples(200))
def test_odd_pictures_are_shown_as_they_are_meant_or_refused(kind: Odd, levels: np.ndarray) -> None:
    content = kind.stored(levels)
    with Image.open(io.BytesIO(content)) as header:
        if not kind.read:
            with pytest.raises(ValueError, match=r"nothing says which are black and white: save it with 8 or 16 bits"):
                depth_of(header)
            with pytest.raises(ValueError, match="nothing says which are black and white"):
                decode(content, WHOLE, SQUARE)
            return
        depth_of(header)
    try:
        shown = decode(content, WHOLE, SQUARE).astype(int)
    except ValueError as refused:
        assert kind.deep and levels.max() < 16 and "so it would be black" in str(refused)  # noqa: PT017, PT018 - it may be shown
        return
    meant = np.where(half_clear(levels) == 0, 255, levels.astype(int)) if kind.clear else levels.astype(int)
    assert abs(shown - meant[..., None]).max() <= kind.far


@given(levels=RAMPS, place=st.integers(0), bit=st.integers(0, 7), deep=st.booleans())
@settings(max_examples=examples(400))
def test_a_png_with_another_bit_is_what_it_was_or_refused(
    levels: np.ndarray, place: int, bit: int, *, deep: bool
) -> None:
    content = bytearray(png(upper(levels) if deep else levels, GREY))
    try:
        before = decode(bytes(content), WHOLE, SQUARE)
    except ValueError:
        assert levels.max() < 16
        return
    content[place % len(content)] ^= 1 << bit
    try:
        after = decode(bytes(content), WHOLE, SQUARE)
    except UNREADABLE:
        return
    assert (after == before).all()


@pytest.mark.parametrize("kind", ["AVIF", "WEBP", "JPEG", "TIFF", "JPEG2000", "BMP"])
@given(
    changes=st.lists(st.tuples(st.integers(0), st.integers(0, 255)), min_size=1, max_size=6), end=st.integers(0, 2000)
)
@settings(max_examples=examples(400))
def test_a_damaged_picture_is_none_and_no_fault_of_the_program(
    kind: str, changes: list[tuple[int, int]], end: int
) -> None:
    content = bytearray(saved(Image.fromarray(ramp(0, 255, across=True)).convert("RGB"), kind))
    for place, byte in changes:
        content[place % len(content)] = byte
    with contextlib.suppress(*UNREADABLE):
        decode(bytes(content[: len(content) - end // 4]), WHOLE, SQUARE)


def test_an_avif_without_its_pixels_is_unreadable() -> None:
    content = saved(Image.fromarray(ramp(0, 255, across=True)).convert("RGB"), "AVIF")
    damaged = content[:-64] + bytes(64)
    with pytest.raises(UNREADABLE):
        decode(damaged.replace(b"infe", b"infX"), WHOLE, SQUARE)
    with pytest.raises(UNREADABLE):
        decode(damaged, WHOLE, SQUARE)


def test_a_damaged_png_is_refused_as_picture_and_as_mask_and_one_with_damaged_remarks_is_not() -> None:
    levels = ramp(0, 255, across=True)
    content = png(levels, GREY)
    at = content.index(b"IDAT") + 20
    damaged = content[:at] + bytes([content[at] ^ 255]) + content[at + 1 :]
    for show in (decode, decode_mask):
        with pytest.raises(ValueError, match=r"damaged: the \d+ bytes of its pixels from byte \d+ on"):
            show(damaged, WHOLE, SQUARE)
    end = content.index(b"IEND") - 4
    remarked = content[:end] + b"\0\0\0\4tEXtoops\0\0\0\0" + content[end:]
    assert (decode(remarked, WHOLE, SQUARE)[..., 0] == levels).all()


def test_what_is_transparent_everywhere_is_refused_and_may_be_all_hole() -> None:
    nothing = np.zeros((SIDE, SIDE, 4), dtype=np.uint8)
    for content in (png(nothing, RGB_ALPHA), png(np.full((SIDE, SIDE), 7, dtype=np.uint8), GREY, transparent=(7,))):
        with pytest.raises(ValueError, match="it is transparent everywhere"):
            decode(content, WHOLE, SQUARE)
        assert (decode(content, WHOLE, SQUARE, holes=True)[..., 3] == 0).all()


def test_levels_of_twelve_bits_in_sixteen_are_refused_instead_of_black() -> None:
    levels = ramp(0, 255, across=True).astype(np.uint16)
    for content in (png(levels << 4, GREY), png(levels, GREY), png(np.dstack([levels << 4] * 3), RGB)):
        with pytest.raises(ValueError, match="so it would be black: stretch its levels, or save it with 8 bits"):
            decode(content, WHOLE, SQUARE)


def test_holes_of_a_reference_may_be_a_clear_level_of_sixteen_bits() -> None:
    levels = upper(ramp(0, 200, across=True))
    levels[:, 32:] = 0xFF00
    found = decode(png(levels, GREY, transparent=(0xFF00,)), WHOLE, SQUARE, any_size=True, holes=True)
    assert found.shape == (SIDE, SIDE, 4)
    assert (found[..., 3] == half_clear(levels)).all()
    with pytest.raises(ValueError, match="it has no alpha channel"):
        decode(png(levels, GREY), WHOLE, SQUARE, any_size=True, holes=True)


def test_a_clear_colour_of_sixteen_bits_is_compared_with_its_upper_ones() -> None:
    colours = np.dstack([upper(ramp(0, 200, across=True))] * 3)
    colours[:, 32:] = (0xFF00, 0x8000, 0x0100)
    content = png(colours, RGB, transparent=(0xFF00, 0x8000, 0x0100))
    assert (decode(content, WHOLE, SQUARE)[:, 32:] == 255).all()
    assert decode(content, WHOLE, SQUARE)[:, :32].max() < 255


@pytest.mark.parametrize("kind", ["fractions", "32 bits", "TIFF of 16 bits, the upper one first", "grey of 16 bits"])
def test_a_mask_of_more_than_eight_bits_is_refused(kind: str) -> None:
    with pytest.raises(ValueError, match="save it as a grey picture of 8 bits"):
        decode_mask(ODD[kind].stored(ramp(0, 255, across=True)), WHOLE, SQUARE)


@pytest.mark.parametrize("orientation", [3, 6])
def test_a_turned_picture_of_sixteen_bits_is_shown_turned(orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    levels = ramp(0, 255, across=True)
    for kind in ("PNG", "TIFF"):
        content = io.BytesIO()
        Image.fromarray(upper(levels)).save(content, kind, exif=exif)
        shown = decode(content.getvalue(), WHOLE, SQUARE)[..., 0]
        assert (shown == np.rot90(levels, k=2 if orientation == 3 else 3)).all()
