"""Real runs of FLUX.1 Kontext: each picture beside its reference, on any ranks, after a restart, and drawn with one."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from PIL import Image, ImageOps

if TYPE_CHECKING:
    from pathlib import Path

    from gang import Gang, Run

pytestmark = pytest.mark.deep


@pytest.fixture(scope="module")
def references(gang: Gang, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of each picture of the session its negative, as another kind of file."""
    folder = tmp_path_factory.mktemp("references")
    for path in gang.pictures.glob("*.png"):
        ImageOps.invert(Image.open(path).convert("RGB")).save(folder / f"{path.stem}.webp", lossless=True)
    return folder


def training(gang: Gang, output: Path, references: Path, **fields: Any) -> dict[str, Any]:
    dataset = {
        "name": "edits", "source": {"path": str(gang.pictures)}, "randomFlip": True,
        "conditioning": {"kind": "Reference", "source": {"path": str(references)}},
    }  # fmt: skip
    data = {
        "textEmbeds": {"path": str(gang.cache / "text")}, "imageEmbeds": {"path": str(output.parent / "latents")},
        "datasets": [dataset | fields.pop("dataset", {})],
    }  # fmt: skip
    model = {"family": "Flux1", "flavor": "Kontext", "path": str(gang.model)}
    return gang.training(**{"steps": 6, "checkpoint": {"intervalSteps": 3}, "data": data, "model": model} | fields)


def ended(gang: Gang, output: Path, settings: dict[str, Any], **facts: Any) -> Run:
    found = gang.run(output, settings, **facts)
    assert set(found.codes.values()) == {0}, gang.log()
    return found


def test_references_are_learnt_with_on_any_ranks_after_a_restart_and_encoded_on_the_fly(
    gang: Gang, tmp_path: Path, references: Path
) -> None:
    calm = ended(gang, tmp_path / "calm", training(gang, tmp_path / "calm", references)).losses
    plain = ended(
        gang, tmp_path / "plain", training(gang, tmp_path / "plain", references, dataset={"conditioning": None})
    ).losses
    assert all(calm[step] != plain[step] for step in calm)
    one = training(gang, tmp_path / "one", references, gradientAccumulation=2)
    # The same samples, added up in another order in bfloat16.
    assert ended(gang, tmp_path / "one", one, ranks=1).losses == pytest.approx(calm, rel=2e-3)
    output = tmp_path / "disturbed"

    def leave(event: dict[str, Any]) -> None:
        if event["event"] == "step" and event["step"] == 3:
            gang.ask_to_leave()

    settings = training(gang, output, references, dataset={"imageEmbeds": {"mode": "OnTheFly"}})
    first = gang.run(output, settings, on_event=leave)
    assert set(first.codes.values()) == {86}, gang.log()
    second = ended(gang, output, settings, attempt=2)
    assert first.losses | second.losses == pytest.approx(calm, rel=1e-6)


def test_prompts_are_drawn_with_their_references(gang: Gang, tmp_path: Path, references: Path) -> None:
    folder = tmp_path / "prompts"
    folder.mkdir()
    for name, path in zip(("boat", "cat"), sorted(references.glob("*.webp")), strict=False):
        shutil.copy(path, folder / f"{name}.webp")
    prompts = [{"name": name, "prompt": "make it day"} for name in ("boat", "cat")]
    validation = {
        "everySteps": 3, "prompts": prompts, "resolutions": ["64x64", "32x64"], "inferenceSteps": 2,
        "references": {"path": str(folder)},
    }  # fmt: skip
    settings = training(gang, tmp_path / "out", references, steps=3, validation=validation)
    ended(gang, tmp_path / "out", settings)
    drawn = json.loads((tmp_path / "out/validation/index.json").read_text())["pictures"]
    assert {one["file"] for one in drawn} == {
        f"step-3/{name}-{size}.png" for name in ("boat", "cat") for size in ("64x64", "32x64")
    }
    # The prompt, the seed and the size are the same: what differs is the reference.
    boat, cat = (Image.open(tmp_path / f"out/validation/step-3/{name}-64x64.png").tobytes() for name in ("boat", "cat"))
    assert boat != cat
    (folder / "cat.webp").unlink()
    lacking = gang.run(tmp_path / "lacking", settings)
    assert set(lacking.codes.values()) == {85}
    assert "has no picture for cat: add cat.png" in lacking.failure
