"""Real photographs for examples and tests: scikit-image's, cut to several aspects and scaled down, with captions.

scikit-image is a development dependency and only needed here.
"""

from __future__ import annotations

from importlib import resources
from pathlib import PurePath
from typing import TYPE_CHECKING

from PIL import Image

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_SUBJECTS = {
    "astronaut.png": "a portrait of an astronaut in an orange suit",
    "chelsea.png": "a tabby cat looks into the camera",
    "coffee.png": "a cup of coffee on a wooden table",
    "rocket.jpg": "a rocket on its launch pad",
    "camera.png": "a man behind a camera on a tripod",
    "motorcycle_left.png": "a motorcycle in a workshop",
    "hubble_deep_field.jpg": "hundreds of galaxies in a dark sky",
    "moon.png": "the surface of the moon",
    "coins.png": "old coins in rows on dark cloth",
    "brick.png": "a brick wall",
    "grass.png": "grass seen from above",
    "gravel.png": "gravel seen from above",
    "page.png": "a printed page with a shadow over it",
    "clock_motion.png": "a clock in motion",
}
"""Files that come with the package itself; a release that lacks one is no problem, and nothing is downloaded."""

ASPECTS: tuple[float, ...] = (1.0, 1.5, 0.67)


def write(directory: Path, *, count: int = 24, shorter_side: int = 64, aspects: Sequence[float] = ASPECTS) -> list[str]:
    """Write `count` photographs as PNG, each with a caption beside it; returns their names.

    The pictures take turns over the aspects (width / height), so that every bucket gets count / len(aspects).
    """
    directory.mkdir(parents=True, exist_ok=True)
    photographs = _photographs()
    names = []
    for number in range(count):
        subject, picture = photographs[(number // len(aspects)) % len(photographs)]
        aspect = aspects[number % len(aspects)]
        name = f"{number:03d}-{PurePath(subject).stem}.png"
        turn = number // (len(aspects) * len(photographs))
        _cut(picture, aspect, shorter_side, turn).save(directory / name)
        caption = f"{_SUBJECTS[subject]}, picture {number}"
        (directory / name).with_suffix(".txt").write_text(f"{caption}\n", encoding="utf-8")
        names.append(name)
    return names


def _photographs() -> list[tuple[str, Image.Image]]:
    folder = resources.files("skimage.data")
    found = []
    for name in _SUBJECTS:
        file = folder / name
        if file.is_file():
            with file.open("rb") as opened, Image.open(opened) as picture:
                found.append((name, picture.convert("RGB")))
    if not found:
        raise RuntimeError("this release of scikit-image has none of the photographs: use 0.25 or another list")
    return found


def _cut(picture: Image.Image, aspect: float, shorter_side: int, turn: int) -> Image.Image:
    """The largest part of the aspect, moved a little each turn, scaled to the shorter side."""
    width, height = picture.size
    share = 0.9 if turn else 1.0
    cut_width = min(width, height * aspect) * share
    cut_height = cut_width / aspect
    left, top = ((width - cut_width) * (0.5 if not turn else (turn * 0.37) % 1.0), (height - cut_height) * 0.5)
    wide, high = max(aspect, 1.0), max(1.0 / aspect, 1.0)
    size = (round(shorter_side * wide), round(shorter_side * high))
    box = (left, top, left + cut_width, top + cut_height)
    return picture.resize(size, Image.Resampling.LANCZOS, box=box)
