"""The pictures below an output, their index and their grid."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from PIL import Image

from oarlock_api.contract.pictures import is_picture, thumbnail_of
from oarlock_trainer.validation.image_requests import ImageRequest
from oarlock_trainer.validation.index import MadeImage, Pictures

if TYPE_CHECKING:
    from pathlib import Path


def wanted(name: str, prompt: str = "a boat", edge: int = 64) -> ImageRequest:
    return ImageRequest(
        name=name, prompt=prompt, negative="", file=f"{name}-{edge}x{edge}.png", width=edge, height=edge, steps=2,
        guidance=3.5, scale=1.0, seed=1,
    )  # fmt: skip


def make(pictures: Pictures, step: int, *many: ImageRequest) -> None:
    colour = Image.new("RGB", (64, 64), "red")
    pictures.add(step, [MadeImage(wanted=one, file=pictures.write(step, one, colour), seconds=1.5) for one in many])


def test_what_is_in_the_index_and_on_disk_is_not_missing_any_more(tmp_path: Path) -> None:
    pictures = Pictures(tmp_path, job_uid="job")
    boat, cat = wanted("boat"), wanted("cat")
    assert pictures.missing(2, [boat, cat]) == [0, 1]
    make(pictures, 2, boat)
    assert pictures.missing(2, [boat, cat]) == [1]
    assert pictures.missing(4, [boat, cat]) == [0, 1]
    (tmp_path / "validation/step-2/boat-64x64.png").unlink()
    assert pictures.missing(2, [boat, cat]) == [0, 1]


def test_another_prompt_or_another_job_wants_its_own_picture(tmp_path: Path) -> None:
    make(Pictures(tmp_path, job_uid="job"), 2, wanted("boat"))
    assert Pictures(tmp_path, job_uid="job").missing(2, [wanted("boat", prompt="a ship")]) == [0]
    assert Pictures(tmp_path, job_uid="other").missing(2, [wanted("boat")]) == [0]


def test_the_index_names_each_picture_once_with_its_request_and_the_grid_shows_all_of_the_step(tmp_path: Path) -> None:
    pictures = Pictures(tmp_path, job_uid="job")
    make(pictures, 2, wanted("boat"), wanted("boat", edge=32))
    make(pictures, 2, wanted("cat"))
    make(Pictures(tmp_path, job_uid="other"), 2, wanted("cat"))
    entries = json.loads((tmp_path / "validation/index.json").read_text())["pictures"]
    assert [entry["file"] for entry in entries] == [
        "step-2/boat-32x32.png", "step-2/boat-64x64.png", "step-2/cat-64x64.png",
    ]  # fmt: skip
    assert entries[2] == {
        "step": 2, "name": "cat", "prompt": "a boat", "negative": "", "width": 64, "height": 64, "steps": 2,
        "guidance": 3.5, "scale": 1.0, "seed": 1, "file": "step-2/cat-64x64.png", "seconds": 1.5, "jobUid": "other",
    }  # fmt: skip
    with Image.open(tmp_path / "validation/step-2/grid.png") as grid:
        assert grid.size == (2 * 256, 2 * (256 + 14))
        assert [grid.getpixel(place) for place in ((5, 5), (261, 5), (261, 275))] == [(255, 0, 0)] * 3
        assert grid.getpixel((5, 275)) == (255, 255, 255)


def test_a_video_stands_beside_its_first_frame_and_the_index_names_it(tmp_path: Path) -> None:
    pictures, video = Pictures(tmp_path, job_uid="job"), replace(wanted("boat"), frames=5)
    assert pictures.missing(2, [video]) == [0]
    file = pictures.write(2, video, Image.new("RGB", (64, 64), "red"), b"frames")
    pictures.add(2, [MadeImage(wanted=video, file=file, seconds=1.5)])
    assert (tmp_path / "validation/step-2/boat-64x64.webm").read_bytes() == b"frames"
    (entry,) = pictures.of_step(2)
    assert (entry["file"], entry["video"], entry["frames"]) == ("step-2/boat-64x64.png", "step-2/boat-64x64.webm", 5)
    assert pictures.missing(2, [video]) == []
    assert pictures.missing(2, [replace(video, frames=9)]) == pictures.missing(2, [wanted("boat")]) == [0]
    (tmp_path / "validation/step-2/boat-64x64.webm").unlink()
    assert pictures.missing(2, [video]) == [0]


def test_an_index_that_cannot_be_read_counts_as_none(tmp_path: Path) -> None:
    pictures = Pictures(tmp_path, job_uid="job")
    make(pictures, 2, wanted("boat"))
    (tmp_path / "validation/index.json").write_text("{")
    assert pictures.missing(2, [wanted("boat")]) == [0]
    make(pictures, 2, wanted("boat"))
    assert pictures.missing(2, [wanted("boat")]) == []


def test_each_picture_has_a_small_one_beside_it_for_galleries(tmp_path: Path) -> None:
    large = Image.new("RGB", (1024, 2048), "red")
    file = Pictures(tmp_path, job_uid="job").write(2, wanted("boat"), large)
    with Image.open(tmp_path / "validation" / thumbnail_of(file)) as small:
        assert (small.format, small.size) == ("JPEG", (256, 512))
    assert large.size == (1024, 2048)
    assert is_picture(thumbnail_of(file))
