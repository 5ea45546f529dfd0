"""Masks: cut and flipped as their pictures are, averaged to the latents, cached beside these, told where they are bad."""

from __future__ import annotations

import io
import json
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from PIL import Image

from oarlock_api.contract.layout import DATA_MANIFEST, PRIVATE
from oarlock_trainer.data import photographs
from oarlock_trainer.data.buckets import Cut, Size
from oarlock_trainer.preprocess.masks import average, decode_mask
from oarlock_trainer.preprocess.shapes import OtherShapeError

if TYPE_CHECKING:
    from pathlib import Path

    from preprocess_runs import Preprocess

SQUARE = Size(64, 64)
WHOLE = Cut(scaled=SQUARE, left=0, top=0, target=SQUARE)


def stored(picture: Image.Image) -> bytes:
    content = io.BytesIO()
    picture.save(content, "PNG")
    return content.getvalue()


def drawn(levels: np.ndarray) -> bytes:
    return stored(Image.fromarray(levels))


def test_a_mask_is_cut_and_mirrored_as_its_picture() -> None:
    levels = np.random.default_rng(0).integers(0, 256, (40, 60), dtype=np.uint8)
    cut, size = Cut(scaled=Size(60, 40), left=3, top=5, target=Size(32, 32)), Size(60, 40)
    assert (decode_mask(drawn(levels), cut, size) == levels[5:37, 3:35]).all()
    assert (decode_mask(drawn(levels), cut, size, mirrored=True) == levels[5:37, 3:35][:, ::-1]).all()


def test_a_latent_pixel_counts_by_the_mean_of_its_pixels_and_white_is_one_to_the_bit() -> None:
    levels = np.zeros((2, 64, 64), dtype=np.uint8)
    levels[0] = 255
    levels[1, :, 4:] = 255
    found = average(levels, 8)
    assert (found.shape, found.dtype) == ((2, 1, 8, 8), torch.bfloat16)
    assert torch.equal(found[0], torch.ones(1, 8, 8, dtype=torch.bfloat16))
    assert found[1, 0, 0].tolist() == [0.5, *[1.0] * 7]
    assert torch.equal(average(levels[:, :, ::-1], 8), found.flip(-1))


def test_a_mask_of_half_the_pictures_size_says_the_same_and_hard_borders_do_not_ring() -> None:
    large = np.zeros((128, 128), dtype=np.uint8)
    large[:, 64:] = 255
    for levels in (large, large[::2, ::2], large[::4, ::4]):
        found = decode_mask(drawn(levels), WHOLE, SQUARE)
        assert (found[:, :32] == 0).all()
        assert (found[:, 32:] == 255).all()


def test_what_is_transparent_does_not_count() -> None:
    layer = np.full((64, 64, 4), 255, dtype=np.uint8)
    layer[:, :32, 3] = 0
    for picture in (Image.fromarray(layer), Image.fromarray(layer).convert("LA")):
        found = decode_mask(stored(picture), WHOLE, SQUARE)
        assert (found[:, :32].max(), found[:, 32:].min()) == (0, 255)


@pytest.mark.parametrize("mode", ["1", "L", "RGB", "P"])
def test_a_mask_may_be_stored_in_any_way_with_eight_bits(mode: str) -> None:
    levels = np.zeros((64, 64), dtype=np.uint8)
    levels[:, 32:] = 255
    found = decode_mask(stored(Image.fromarray(levels).convert(mode)), WHOLE, SQUARE)
    assert (found == levels).all()


def test_a_mask_of_another_shape_and_one_of_sixteen_bits_are_refused() -> None:
    with pytest.raises(OtherShapeError, match="64 x 32, the picture is 64 x 64"):
        decode_mask(drawn(np.zeros((32, 64), dtype=np.uint8)), WHOLE, SQUARE)
    with pytest.raises(ValueError, match="save it as a grey picture of 8 bits"):
        decode_mask(drawn(np.zeros((64, 64), dtype=np.uint16)), WHOLE, SQUARE)
    odd = Size(1023, 767)
    cut = Cut(scaled=odd, left=0, top=0, target=Size(512, 512))
    for side in ((383, 511), (384, 512), (384, 511), (767, 1023)):
        decode_mask(drawn(np.zeros(side, dtype=np.uint8)), cut, odd)


def masks_for(pictures: Path, folder: Path) -> Path:
    """A mask for each picture, of another kind of file: its right half counts."""
    folder.mkdir(parents=True)
    for path in pictures.glob("*.png"):
        width, height = Image.open(path).size
        levels = np.zeros((height, width), dtype=np.uint8)
        levels[:, width // 2 :] = 255
        Image.fromarray(levels).save(folder / f"{path.stem}.webp", lossless=True)
    return folder


def conditioned(folder: Path, **fields: Any) -> dict[str, Any]:
    return {"conditioning": {"kind": "Mask", "source": {"path": str(folder)}}} | fields


@pytest.fixture(scope="module")
def masks(preprocess: Preprocess, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return masks_for(preprocess.pictures, tmp_path_factory.mktemp("masks") / "masks")


def test_masks_are_cached_beside_the_latents_of_before_which_stay_as_they_are(
    preprocess: Preprocess, undisturbed: tuple[Path, dict[str, Any]], masks: Path, tmp_path: Path
) -> None:
    shutil.copytree(undisturbed[0] / "embeds/latents", tmp_path / "latents")
    cache = {"imageEmbeds": {"path": str(tmp_path / "latents")}}
    answers = preprocess(tmp_path, preprocess.training(cache, **conditioned(masks, randomFlip=True)), ranks=2)
    assert [answer["code"] for answer in answers] == [0, 0], answers
    shapes, count = answers[1]["facts"]["latents"], preprocess.count
    assert shapes[:count] == undisturbed[1]["facts"]["latents"]
    assert shapes[2 * count : 3 * count] == shapes[3 * count :] == [[1, *shape[1:]] for shape in shapes[:count]]
    report = json.loads((tmp_path / DATA_MANIFEST).read_text())
    assert (report["latents"]["records"], report["pairs"]["records"]) == (2 * count, 2 * count)
    last = [event["message"] for event in answers[0]["told"] if event["event"] == "note"][-1]
    assert f"{2 * count} latents (" in last
    assert f"{2 * count} masks or references (" in last
    assert f"; {4 * count + 1} of them made now, {count} were there" in last  # the latents; captions lie elsewhere
    again = preprocess(tmp_path, preprocess.training(cache, **conditioned(masks, randomFlip=True)), attempt=2)
    assert again[0]["facts"] == answers[0]["facts"]


@pytest.mark.deep
@pytest.mark.parametrize("mode", ["OnDemand", "OnTheFly"])
def test_while_training_the_same_masks_are_made_as_before_it(
    preprocess: Preprocess, masks: Path, tmp_path: Path, mode: str
) -> None:
    training = preprocess.training(**conditioned(masks, randomFlip=True))
    count = preprocess.count
    entries = [2 * count, 3 * count]
    (cached,) = preprocess(tmp_path / "cached", training, sums=entries)
    training = preprocess.training(**conditioned(masks, randomFlip=True, imageEmbeds={"mode": mode}))
    (live,) = preprocess(tmp_path / "live", training, live=entries)
    assert live["code"] == cached["code"] == 0, (live["said"], cached["said"])
    first, second = live["facts"]["live"]
    assert first == second == cached["facts"]["sums"]
    assert first[0] == first[1]  # half of it counts, whichever


def test_a_bad_mask_leaves_its_picture_out_and_is_named_with_what_is_wrong(
    preprocess: Preprocess, tmp_path: Path
) -> None:
    pictures = tmp_path / "photos"
    names = [name.removesuffix(".png") for name in photographs.write(pictures, count=30)]
    folder = masks_for(pictures, tmp_path / "masks")
    (folder / f"{names[0]}.webp").unlink()
    body = (folder / f"{names[1]}.webp").read_bytes()
    (folder / f"{names[1]}.webp").write_bytes(body[: len(body) // 2])
    Image.new("L", (7, 70)).save(folder / f"{names[2]}.webp")
    training = preprocess.training(source={"path": str(pictures)}, **conditioned(folder, randomFlip=True))
    (answer,) = preprocess(tmp_path / "out", training)
    assert answer["code"] == 0, answer["said"]
    facts = answer["facts"]
    assert len(facts["names"]) == 29
    assert {facts["names"][row] for row in facts["leftOut"]} == {f"{name}.png" for name in names[1:3]}
    lines = (tmp_path / "out" / PRIVATE / "quarantine.jsonl").read_text().splitlines()
    listed = {one["name"]: one for one in map(json.loads, lines)}
    assert sorted(listed) == [f"{name}.png" for name in names[:3]]
    kinds = [listed[f"{name}.png"]["kind"] for name in names[:3]]
    assert kinds == ["without mask", "with an unreadable mask", "with a mask of another shape"]
    assert f"{folder} has no picture {names[0]}.png" in listed[f"{names[0]}.png"]["reason"]
    assert f"its mask {names[1]}.webp is unreadable" in listed[f"{names[1]}.png"]["reason"]
    again = preprocess(tmp_path / "out", training, attempt=2)
    assert again[0]["facts"] == facts


def test_references_have_latents_of_their_own_and_must_have_their_pictures_shape(
    preprocess: Preprocess, tmp_path: Path
) -> None:
    pictures, folder = tmp_path / "photos", tmp_path / "before"
    names = photographs.write(pictures, count=9)
    photographs.write(folder, count=9, shorter_side=128)
    Image.new("RGB", (7, 70)).save(folder / names[0])
    given = {"conditioning": {"kind": "Reference", "source": {"path": str(folder)}}, "source": {"path": str(pictures)}}
    training = preprocess.training(**given) | {"steps": None}
    training["model"] |= {"flavor": "Kontext"}
    (answer,) = preprocess(tmp_path / "out", training, sums=[1, 18 + 1])
    assert answer["code"] == 0, answer["said"]
    shapes = answer["facts"]["latents"]
    assert shapes[18:27][1:] == shapes[:9][1:]
    assert [answer["facts"]["names"][row] for row in answer["facts"]["leftOut"]] == [names[0]]
    picture, reference = answer["facts"]["sums"]
    assert picture != reference
    again = tmp_path / "live"
    live = json.loads(json.dumps(training))
    live["data"]["datasets"][0]["imageEmbeds"] = {"mode": "OnDemand"}
    (made,) = preprocess(again, live, live=[18 + 1])
    assert made["code"] == 0, made["said"]
    assert made["facts"]["live"][0] == [reference]


def test_more_pictures_without_masks_than_may_be_end_the_job(preprocess: Preprocess, tmp_path: Path) -> None:
    (tmp_path / "masks").mkdir()
    (answer,) = preprocess(tmp_path / "out", preprocess.training(**conditioned(tmp_path / "masks")))
    assert answer["code"] == 85
    assert f"{preprocess.count} of {preprocess.count} pictures cannot be used" in answer["said"]
    assert "without mask" in answer["said"]
