"""What a validation leaves below the output: pictures, one grid of them for each step, and an index of all.

    validation/step-200/boat-1024x1024.png
    validation/step-200/thumbs/boat-1024x1024.jpg    the same for a gallery; written first, so that no picture lacks it
    validation/step-200/boat-1024x1024.webm         all frames, where it is a video: the picture is its first one
    validation/step-200/grid.png
    validation/index.json

Each file is there whole or not at all. The index is written by one process, and says which pictures need not be made
again: those of the same job, step and request whose file is there.
"""

from __future__ import annotations

import io
import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from PIL import Image, ImageDraw

from oarlock_api.contract.pictures import FOLDER, GRID, INDEX, THUMBNAIL_EDGE, folder_of, thumbnail_of, video_of
from oarlock_trainer.runtime.atomic_write import write_bytes, write_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from oarlock_trainer.validation.image_requests import ImageRequest

_LINE = 14
"""Pixels under each picture of the grid, for its prompt's name."""
_CELL, _LONGEST_EDGE = 256, 4096
"""Pixels of a picture in the grid, and of the grid: with very many pictures they get smaller."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeImage:
    """One picture that is there: `file` relative to the folder of pictures, and how long it took."""

    wanted: ImageRequest
    file: str
    seconds: float


class Pictures:
    """The pictures below one output."""

    def __init__(self, output: Path, *, job_uid: str) -> None:
        self._folder = output / FOLDER
        self._job_uid = job_uid

    def missing(self, step: int, wanted: Sequence[ImageRequest]) -> list[int]:
        """Places in `wanted` of the pictures that this job has not made at this step."""
        known = [_without_seconds(entry) for entry in self.of_step(step)]
        return [
            place
            for place, one in enumerate(wanted)
            if _without_seconds(self._entry(step, MadeImage(wanted=one, file=_file(step, one), seconds=0.0)))
            not in known
            or not all((self._folder / file).is_file() for file in _files(step, one))
        ]

    def of_step(self, step: int) -> list[dict[str, Any]]:
        """The index's entries of a step."""
        return [entry for entry in self._entries() if entry.get("step") == step]

    def write(self, step: int, wanted: ImageRequest, picture: Image.Image, video: bytes | None = None) -> str:
        """Write a picture and what stands beside it; returns its file, relative to the folder of pictures. Raises OSError."""
        file = _file(step, wanted)
        small = self._folder / thumbnail_of(file)
        small.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(small, _thumbnail(picture))
        if video:
            write_bytes(self._folder / video_of(file), video)
        write_bytes(self._folder / file, _png(picture))
        return file

    def add(self, step: int, made: Iterable[MadeImage]) -> None:
        """Put pictures into the index, and make the step's grid of all that it has. One process only. Raises OSError."""
        new = [self._entry(step, one) for one in made]
        files = {entry["file"] for entry in new}
        entries = [entry for entry in self._entries() if entry.get("file") not in files] + new
        entries.sort(key=lambda entry: (entry.get("step", 0), entry.get("file", "")))
        write_json(self._folder / INDEX, {"pictures": entries})
        write_bytes(self._folder / folder_of(step) / GRID, _png(self._grid(self.of_step(step))))

    def _entries(self) -> list[dict[str, Any]]:
        try:
            found = json.loads((self._folder / INDEX).read_text(encoding="utf-8"))["pictures"]
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return []
        return [entry for entry in found if isinstance(entry, dict)]

    def _entry(self, step: int, made: MadeImage) -> dict[str, Any]:
        facts = {key: value for key, value in asdict(made.wanted).items() if key != "file" and value is not None}
        if made.wanted.frames:
            facts["video"] = video_of(made.file)
        return facts | {"step": step, "file": made.file, "seconds": round(made.seconds, 3), "jobUid": self._job_uid}

    def _grid(self, entries: Sequence[dict[str, Any]]) -> Image.Image:
        """A row for each prompt, a column for each size."""
        rows = list(dict.fromkeys(entry["name"] for entry in entries))
        columns = sorted({(entry["width"], entry["height"]) for entry in entries})
        cell = max(min(_CELL, _LONGEST_EDGE // max(len(rows), len(columns))), _LINE)
        grid = Image.new("RGB", (cell * len(columns), (cell + _LINE) * len(rows)), "white")
        draw = ImageDraw.Draw(grid)
        for entry in entries:
            left = cell * columns.index((entry["width"], entry["height"]))
            top = (cell + _LINE) * rows.index(entry["name"])
            path = self._folder / entry["file"]
            if path.is_file():
                with Image.open(path) as picture:
                    picture.thumbnail((cell, cell))
                    grid.paste(picture, (left, top))
            draw.text((left + 2, top + cell + 1), entry["name"][: cell // 6], fill="black")
        return grid


def _file(step: int, wanted: ImageRequest) -> str:
    return f"{folder_of(step)}/{wanted.file}"


def _files(step: int, wanted: ImageRequest) -> list[str]:
    """What has to be there, or the picture is made again."""
    file = _file(step, wanted)
    return [file, video_of(file)] if wanted.frames else [file]


def _without_seconds(entry: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if key != "seconds"}


def _thumbnail(picture: Image.Image) -> bytes:
    small, content = picture.copy(), io.BytesIO()
    small.thumbnail((THUMBNAIL_EDGE, THUMBNAIL_EDGE))
    small.save(content, "JPEG", quality=85)
    return content.getvalue()


def _png(picture: Image.Image) -> bytes:
    content = io.BytesIO()
    picture.save(content, "PNG")
    return content.getvalue()
