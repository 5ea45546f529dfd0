"""The pictures of validations below an output: where they lie, and which names are pictures. Pure, and for Python 3.10.

    <output>/validation/index.json                             what there is: step, prompt, seed, size, file of each
    <output>/validation/step-200/boat-1024x1024.png            one picture; its file in the index begins with the step
    <output>/validation/step-200/thumbs/boat-1024x1024.jpg     the same, at most THUMBNAIL_EDGE pixels high and wide
    <output>/validation/step-200/boat-1024x1024.webm           where it is a video, of which the picture is the first frame
    <output>/validation/step-200/grid.png                      all of the step

Names may come from strangers: what `is_picture` takes leads nowhere else.
"""

from __future__ import annotations

import re

FOLDER = "validation"
INDEX = "index.json"
GRID = "grid.png"
THUMBNAILS = "thumbs"
THUMBNAIL_EDGE = 512
MOST_INDEX = 16 * 2**20
MOST_PICTURE = 32 * 2**20
"""Bytes that are read of an index and of a picture; 2048 x 2048 pixels are 12 MiB before PNG packs them."""

_PICTURE = re.compile(rf"step-[0-9]{{1,12}}/(?:[A-Za-z0-9._-]{{1,200}}\.png|{THUMBNAILS}/[A-Za-z0-9._-]{{1,200}}\.jpg)")
_MAGIC = {".png": b"\x89PNG\r\n\x1a\n", ".jpg": b"\xff\xd8\xff"}


def folder_of(step: int) -> str:
    """The folder of a step's pictures, below FOLDER."""
    return f"step-{step}"


def thumbnail_of(file: str) -> str:
    """The small picture of a picture, both below FOLDER."""
    folder, _, name = file.rpartition("/")
    return f"{folder}/{THUMBNAILS}/{name.removesuffix('.png')}.jpg"


def video_of(file: str) -> str:
    """The video whose first frame a picture is, both below FOLDER."""
    return f"{file.removesuffix('.png')}.webm"


def is_picture(file: str) -> bool:
    """Whether a name below FOLDER is one that a picture, a thumbnail or a grid can have."""
    return _PICTURE.fullmatch(file) is not None


def kind(content: bytes) -> str | None:
    """The media type of a picture by its first bytes; None where it is none."""
    if content.startswith(_MAGIC[".png"]):
        return "image/png"
    return "image/jpeg" if content.startswith(_MAGIC[".jpg"]) else None
