"""Which files are pictures, which videos, by their ending; and how pictures are opened, by Pillow and its plug-ins."""

from __future__ import annotations

import importlib
from contextlib import contextmanager
from functools import cache
from typing import IO, TYPE_CHECKING

from PIL import Image, PngImagePlugin, UnidentifiedImageError, features

if TYPE_CHECKING:
    from collections.abc import Iterator

_MOST_PIXELS = 2 * (Image.MAX_IMAGE_PIXELS or 0) // 10**6
"""Millions. Pillow refuses twice what it warns of: such a header may be a bomb."""
VIDEOS = frozenset({".mp4", ".mov", ".m4v", ".webm", ".mkv", ".avi"})
HEIF = frozenset({".heic", ".heif"})
HEIF_PLUG_IN = "pillow-heif"
"""The package that reads them: it is no part of the trainer, and used where an image has it."""
PngImagePlugin.MAX_TEXT_CHUNK = PngImagePlugin.MAX_TEXT_MEMORY
"""One text may have what all texts together may, 64 MiB: drawing programs keep their work in it, and cameras a profile."""
_PICTURES = frozenset({".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff"})


def picture_endings() -> frozenset[str]:
    """Those that are read here."""
    avif = frozenset({".avif"} if features.check("avif") else ())
    return _PICTURES | avif | (HEIF if heif_is_read() else frozenset())


@contextmanager
def open_picture(file: IO[bytes]) -> Iterator[Image.Image]:
    """A picture whose header was read, by plug-ins too. Raises what quarantine.UNREADABLE lists where it is none."""
    heif_is_read()
    with _as_damage():
        picture = Image.open(file)
    with picture:
        yield picture


def load_pixels(picture: Image.Image) -> None:
    """Decode it. Raises what quarantine.UNREADABLE lists where it is damaged."""
    with _as_damage():
        picture.load()


@contextmanager
def _as_damage() -> Iterator[None]:
    """What decoders of AVIF and HEIF raise of a damaged file would else be taken for the program's fault.

    And what Pillow says of one that it does not know names an object in memory.
    """
    try:
        yield
    except UnidentifiedImageError as error:
        raise ValueError("it is no picture of a kind that is known here") from error
    except Image.DecompressionBombError as error:
        raise ValueError(f"it has more than {_MOST_PIXELS} million pixels: save a smaller copy of it") from error
    except RuntimeError as error:
        raise ValueError(str(error)) from error


@cache
def heif_is_read() -> bool:
    """Whether the plug-in is there, which is then used."""
    try:
        plug_in = importlib.import_module(HEIF_PLUG_IN.replace("-", "_"))
    except ModuleNotFoundError:
        return False
    plug_in.register_heif_opener()
    return True
