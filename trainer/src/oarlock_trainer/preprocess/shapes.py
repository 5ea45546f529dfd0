"""Whether a picture has the size that its cut was made for, and a pair its picture's shape, in any size."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL import Image

    from oarlock_trainer.data.buckets import Size


class OtherSizeError(ValueError):
    """A picture is not the size that the table says: its cut would not fit it."""


class OtherShapeError(ValueError):
    """A pair is no picture of its picture's shape: it would lie beside what it is meant for."""


def check_size(width: int, height: int, size: Size) -> None:
    """Raise OtherSizeError where a picture or video, as it is shown, has not the size that the table says."""
    if (width, height) != (size.width, size.height):
        raise OtherSizeError(
            f"not the size that the table says: {width} x {height} as it is shown, there {size.width} x {size.height}"
        )


def check_shape(pair: Image.Image, size: Size) -> None:
    """Raise OtherShapeError where a pair, as it is shown, has not the shape of a picture of this size.

    A pair of another size has it but for one pixel of its own, which rounding takes or gives.
    """
    wide, high = pair.height * size.width / size.height, pair.width * size.height / size.width
    if min(abs(pair.width - wide), abs(pair.height - high)) > 1.0:
        raise OtherShapeError(
            f"not the shape of its picture: {pair.width} x {pair.height}, the picture is {size.width} x {size.height} as it "
            "is shown"
        )
