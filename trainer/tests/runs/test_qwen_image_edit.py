"""Real runs of Qwen-Image-Edit: each caption read beside its reference, on any ranks, killed, resumed, drawn and exported."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest
import torch
from exports_in_diffusers import ours, predicted
from PIL import Image, ImageOps
from qwenimage_edit import load

from oarlock_api.weights import ModelFamily
from oarlock_trainer.checkpoint.format import valid_checkpoints

if TYPE_CHECKING:
    from pathlib import Path

    from gang import Gang, Run

pytestmark = pytest.mark.deep

STEPS = 4


@pytest.fixture(scope="module")
def references(gang: Gang, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of each picture of the session its negative, as another kind of file."""
    folder = tmp_path_factory.mktemp("references")
    for path in gang.pictures.glob("*.png"):
        ImageOps.invert(Image.open(path).convert("RGB")).save(folder / f"{path.stem}.webp", lossless=True)
    return folder


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where all runs of this file cache."""
    return tmp_path_factory.mktemp("edit")


@pytest.fixture(scope="module")
def job(gang: Gang, home: Path, tiny_qwen_image_edit: Path, references: Path) -> dict[str, Any]:
    """Of some samples the caption is left out, and some show picture and reference mirrored; two prompts are drawn."""
    drawn = home / "drawn"
    drawn.mkdir()
    for name, path in zip(("boat", "cat"), sorted(references.glob("*.webp")), strict=False):
        shutil.copy(path, drawn / f"{name}.webp")
    dataset = {
        "name": "edits", "source": {"path": str(gang.pictures)}, "randomFlip": True,
        "conditioning": {"kind": "Reference", "source": {"path": str(references)}},
    }  # fmt: skip
    validation = {
        "everySteps": STEPS, "prompts": [{"name": name, "prompt": "make it day"} for name in ("boat", "cat")],
        "resolutions": ["64x48"], "inferenceSteps": 2, "references": {"path": str(drawn)},
    }  # fmt: skip
    return gang.training(
        model={"family": "QwenImage", "flavor": "Edit", "path": str(tiny_qwen_image_edit)}, steps=STEPS, batchSize=2,
        effectiveBatch=4, checkpoint={"intervalSteps": 2}, objective={"captionDropout": 0.3}, validation=validation,
        data={
            "textEmbeds": {"path": str(home / "text")}, "imageEmbeds": {"path": str(home / "latents")},
            "datasets": [dataset],
        },
    )  # fmt: skip


def ended(gang: Gang, output: Path, settings: dict[str, Any], **facts: Any) -> Run:
    found = gang.run(output, settings, **facts)
    assert set(found.codes.values()) == {0}, gang.log()
    return found


@pytest.fixture(scope="module")
def calm(gang: Gang, home: Path, job: dict[str, Any]) -> Run:
    return ended(gang, home / "calm", job)


def test_a_text_is_cached_for_each_caption_and_reference_both_ways_with_and_without_words(
    gang: Gang, calm: Run, home: Path
) -> None:
    pictures = len(list(gang.pictures.glob("*.png")))
    report = json.loads((home / "calm/reports/data.json").read_text())
    assert report["textEmbeds"]["records"] == 2 * 2 * pictures
    assert report["latents"]["records"] == report["pairs"]["records"] == 2 * pictures
    assert len(calm.losses) == STEPS


def test_it_is_trained_killed_and_resumed_with_the_same_losses_and_by_one_rank(
    gang: Gang, calm: Run, job: dict[str, Any], tmp_path: Path
) -> None:
    def kill(event: dict[str, Any]) -> None:
        if event["event"] == "checkpoint" and (event["rank"], event["step"]) == (1, 2):
            gang.kill(1)

    assert gang.run(tmp_path / "killed", job, on_event=kill).codes[1] == -9
    newest = valid_checkpoints(tmp_path / "killed")[0].step
    resumed = ended(gang, tmp_path / "killed", job, attempt=2)
    assert resumed.losses == {step: loss for step, loss in calm.losses.items() if step > newest}
    alone = ended(gang, tmp_path / "alone", job | {"validation": None}, ranks=1)
    # The same samples, added up in another order in bfloat16.
    assert alone.losses == pytest.approx(calm.losses, rel=2e-3)


def test_the_picture_behind_a_caption_is_learnt_with_and_drawn_with(
    gang: Gang, calm: Run, job: dict[str, Any], home: Path, tmp_path: Path
) -> None:
    """With other references all is other: also what is drawn of one prompt, seed and size."""
    boat, cat = (
        Image.open(home / f"calm/validation/step-{STEPS}/{name}-64x48.png").tobytes() for name in ("boat", "cat")
    )
    assert boat != cat
    own = job["data"]["datasets"][0]
    same = own | {"conditioning": {"kind": "Reference", "source": {"path": str(tmp_path / "same")}}}
    (tmp_path / "same").mkdir()
    for path in gang.pictures.glob("*.png"):
        shutil.copy(path, tmp_path / "same")
    other = job | {"validation": None, "steps": 1, "checkpoint": {}, "data": job["data"] | {"datasets": [same]}}
    assert ended(gang, tmp_path / "other", other).losses[1] != calm.losses[1]


@pytest.mark.usefixtures("calm")
def test_the_whole_model_and_adapters_are_loaded_by_the_pipeline(
    gang: Gang, job: dict[str, Any], home: Path, tiny_qwen_image_edit: Path, tmp_path: Path
) -> None:
    key, whole = ModelFamily.QWEN_IMAGE, home / "calm/model"
    base = ours(key, tiny_qwen_image_edit)
    theirs = predicted(load(whole, torch.bfloat16).transformer, key)
    assert torch.equal(theirs, ours(key, whole))
    assert not torch.equal(theirs, base)
    adapters = job | {"method": "LoRA", "lora": {"rank": 4}, "validation": None, "checkpoint": {}}
    ended(gang, tmp_path, adapters)
    pipeline = load(tiny_qwen_image_edit, torch.bfloat16)
    pipeline.load_lora_weights(tmp_path / "model")
    theirs = predicted(pipeline.transformer, key)
    assert torch.equal(theirs, ours(key, tiny_qwen_image_edit, tmp_path / "model", rank=4))
    assert not torch.equal(theirs, base)


def test_a_reference_that_cannot_be_read_leaves_its_picture_out_and_is_told(
    gang: Gang, job: dict[str, Any], references: Path, tmp_path: Path
) -> None:
    spoilt = shutil.copytree(references, tmp_path / "spoilt")
    first, second = sorted(spoilt.glob("*.webp"))[:2]
    first.write_bytes(b"no picture")
    dataset = job["data"]["datasets"][0] | {
        "conditioning": {"kind": "Reference", "source": {"path": str(spoilt)}}, "imageEmbeds": {"mode": "OnTheFly"},
    }  # fmt: skip
    settings = job | {
        "validation": None, "steps": 2, "checkpoint": {},
        "data": {"textEmbeds": {"path": str(tmp_path / "text")}, "datasets": [dataset]},
    }  # fmt: skip
    ended(gang, tmp_path / "out", settings)
    told = (tmp_path / "out/.oarlock/quarantine.jsonl").read_text()
    assert first.name in told
    assert second.name not in told
    assert json.loads((tmp_path / "out/reports/data.json").read_text())["datasets"][0]["leftOut"] == 1
