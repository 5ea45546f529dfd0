"""Latents of mirrored pictures: encoded from mirrored pixels, kept beside the others, and made once."""

from __future__ import annotations

import io
import json
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image

from oarlock_api.contract.layout import DATA_MANIFEST, PRIVATE
from oarlock_trainer.data import photographs
from oarlock_trainer.data.buckets import Cut, Size
from oarlock_trainer.preprocess.pictures import decode

if TYPE_CHECKING:
    from pathlib import Path

    from preprocess_runs import Preprocess


def made(output: Path) -> int:
    """Latents that the last attempt had to make."""
    (work,) = (output / PRIVATE / "data" / "work").glob("latents-*.npy")
    return len(np.load(work))


def shards(output: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (output / "embeds" / "latents").glob("shard-*")}


@pytest.fixture(scope="module")
def both(preprocess: Preprocess, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    output = tmp_path_factory.mktemp("both")
    answer, _ = preprocess(output, preprocess.training(randomFlip=True), ranks=2)
    assert answer["code"] == 0, answer["said"]
    return output, answer


def test_a_mirrored_pictures_pixels_are_those_of_its_cut_left_for_right() -> None:
    picture = np.random.default_rng(0).integers(0, 256, (40, 60, 3), dtype=np.uint8)
    content = io.BytesIO()
    Image.fromarray(picture).save(content, "PNG")
    # A crop that is not in the middle: the same part of the picture is shown.
    cut = Cut(scaled=Size(60, 40), left=3, top=5, target=Size(32, 32))
    mirrored = decode(content.getvalue(), cut, mirrored=True)
    assert (mirrored == picture[5:37, 3:35][:, ::-1]).all()
    assert (decode(content.getvalue(), cut) == picture[5:37, 3:35]).all()


def test_both_ways_are_cached_and_counted(preprocess: Preprocess, both: tuple[Path, dict[str, Any]]) -> None:
    output, answer = both
    shapes = answer["facts"]["latents"]
    assert len(shapes) == 2 * preprocess.count
    assert shapes[: preprocess.count] == shapes[preprocess.count :]
    report = json.loads((output / DATA_MANIFEST).read_text())
    assert report["latents"]["records"] == 2 * preprocess.count
    assert report["datasets"][0]["rows"] == preprocess.count


def test_a_cache_of_before_is_used_and_only_what_is_mirrored_is_made(
    preprocess: Preprocess, undisturbed: tuple[Path, dict[str, Any]], both: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    shutil.copytree(undisturbed[0], tmp_path, dirs_exist_ok=True)
    (answer,) = preprocess(tmp_path, preprocess.training(randomFlip=True), attempt=2)
    assert answer["facts"]["latents"] == both[1]["facts"]["latents"]
    assert made(tmp_path) == preprocess.count
    assert shards(undisturbed[0]).items() < shards(tmp_path).items()
    before = shards(tmp_path)
    (answer,) = preprocess(tmp_path, attempt=3)
    assert answer["facts"] == undisturbed[1]["facts"]
    assert shards(tmp_path) == before


def test_while_training_the_same_mirrored_latents_are_made_as_before_it(
    preprocess: Preprocess, both: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    shape = both[1]["facts"]["latents"][0]
    rows = [row for row, other in enumerate(both[1]["facts"]["latents"]) if other == shape]
    some = [*rows[:2], *(row for row in rows if row >= preprocess.count)][:4]
    training = preprocess.training(randomFlip=True, imageEmbeds={"mode": "OnDemand"})
    (answer,) = preprocess(tmp_path, training, live=some)
    assert answer["code"] == 0, answer["said"]
    first, second = answer["facts"]["live"]
    (again,) = preprocess(both[0], preprocess.training(randomFlip=True), attempt=2, sums=some)
    assert first == second == again["facts"]["sums"]
    assert len({total for _, total in first}) == len(some)


def test_a_picture_that_cannot_be_decoded_counts_once(preprocess: Preprocess, tmp_path: Path) -> None:
    """Five may be bad: both ways of five would be ten."""
    pictures = tmp_path / "photos"
    names = photographs.write(pictures, count=30)
    for name in names[:5]:
        body = (pictures / name).read_bytes()
        (pictures / name).write_bytes(body[: len(body) // 2])
    training = preprocess.training(source={"path": str(pictures)}, randomFlip=True)
    (answer,) = preprocess(tmp_path / "out", training)
    assert answer["code"] == 0, answer["said"]
    assert {answer["facts"]["names"][row] for row in answer["facts"]["leftOut"]} == set(names[:5])
    listed = (tmp_path / "out" / PRIVATE / "quarantine.jsonl").read_text().splitlines()
    assert sorted(json.loads(line)["name"] for line in listed) == names[:5]
    notes = [event["message"] for event in answer["told"] if event["event"] == "note"]
    assert sum(note.startswith("5 pictures left out") for note in notes) == 1
    assert "50 latents (" in notes[-1]
    assert "5 of 30 pictures quarantined" in notes[-1]
