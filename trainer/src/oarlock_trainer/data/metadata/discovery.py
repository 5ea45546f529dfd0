"""Metadata by looking: list the source, read the header and caption of every picture.

Only headers are read here; a picture whose header is fine and whose pixels are not is found when it is encoded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from PIL import Image

from oarlock_trainer.data.buckets import Size
from oarlock_trainer.data.metadata.captions import caption
from oarlock_trainer.data.quarantine import UNREADABLE, Rejected

if TYPE_CHECKING:
    from collections.abc import Iterable

    from oarlock_api.dataset import Dataset
    from oarlock_trainer.data.sources.local import LocalSource

_ORIENTATION = 0x0112
_TURNED = frozenset({5, 6, 7, 8})
"""EXIF orientations that swap width and height."""


@dataclass(frozen=True, slots=True)
class Found:
    """A picture with a readable header and a caption."""

    name: str
    size: Size
    version: str
    caption: str


def scan(dataset: Dataset, source: LocalSource, names: Iterable[str]) -> tuple[list[Found], list[Rejected]]:
    """Read headers and captions of some pictures of a dataset.

    Raises ConfigurationError at the first that may not be read: it is not damaged, and is seldom the only one.
    """
    found: list[Found] = []
    rejected: list[Rejected] = []
    for name in names:
        try:
            with source.readable():
                size, version = _header(source, name), source.version(name)
                text = caption(dataset.captions, source, name)
        except UNREADABLE as error:
            rejected.append(Rejected(dataset.name, name, "unreadable", f"unreadable: {error}"))
            continue
        if text is None:
            reason = f"no caption (captions.strategy: {dataset.captions.strategy})"
            rejected.append(Rejected(dataset.name, name, "without caption", reason))
            continue
        found.append(Found(name, size, version, text))
    return found, rejected


def _header(source: LocalSource, name: str) -> Size:
    with Image.open(source.path(name)) as picture:
        width, height = picture.size
        if picture.getexif().get(_ORIENTATION) in _TURNED:
            width, height = height, width
    return Size(width, height)
