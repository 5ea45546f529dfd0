"""A real run of FLUX.2 Dev: told its guidance, given references, killed and resumed, drawn and exported."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from diffusers import Flux2Pipeline  # before ours: a rank imports less of diffusers
from PIL import Image, ImageOps

from oarlock_trainer.checkpoint.format import valid_checkpoints
from oarlock_trainer.models.flux2 import tiny

if TYPE_CHECKING:
    from pathlib import Path

    from gang import Gang

pytestmark = pytest.mark.deep

STEPS = 4


def test_dev_is_trained_with_references_killed_resumed_drawn_and_exported(gang: Gang, tmp_path: Path) -> None:
    model, references = tmp_path / "model", tmp_path / "references"
    tiny.write(model, dev=True)
    references.mkdir()
    for path in gang.pictures.glob("*.png"):
        ImageOps.invert(Image.open(path).convert("RGB")).save(references / path.name)
    Image.open(next(references.iterdir())).save(tmp_path / "boat.png")
    (tmp_path / "drawn").mkdir()
    (tmp_path / "boat.png").rename(tmp_path / "drawn/boat.png")
    data: dict[str, Any] = {
        "textEmbeds": {"path": str(tmp_path / "text")}, "imageEmbeds": {"path": str(tmp_path / "latents")},
        "datasets": [
            {
                "name": "edits", "source": {"path": str(gang.pictures)},
                "conditioning": {"kind": "Reference", "source": {"path": str(references)}},
            }
        ],
    }  # fmt: skip
    pictures = {
        "everySteps": STEPS, "prompts": [{"name": "boat", "prompt": "make it blue"}], "resolutions": ["64x48"],
        "inferenceSteps": 2, "references": {"path": str(tmp_path / "drawn")},
    }  # fmt: skip
    job = gang.training(
        model={"family": "Flux2", "flavor": "Dev", "path": str(model)}, steps=STEPS, batchSize=2, effectiveBatch=4,
        checkpoint={"intervalSteps": 2}, data=data, validation=pictures,
    )  # fmt: skip
    calm = gang.run(tmp_path / "calm", job)
    assert calm.codes == {0: 0, 1: 0}, gang.log()
    assert (tmp_path / f"calm/validation/step-{STEPS}/boat-64x48.png").is_file()
    pipeline = Flux2Pipeline.from_pretrained(tmp_path / "calm/model", dtype=torch.bfloat16)
    pipeline.set_progress_bar_config(disable=True)
    asked = {"prompt": "a boat", "height": 64, "width": 48, "num_inference_steps": 2, "max_sequence_length": 96}
    assert pipeline(**asked).images[0].size == (48, 64)

    def kill(event: dict[str, Any]) -> None:
        if event["event"] == "checkpoint" and (event["rank"], event["step"]) == (1, 2):
            gang.kill(1)

    assert gang.run(tmp_path / "killed", job, on_event=kill).codes[1] == -9
    newest = valid_checkpoints(tmp_path / "killed")[0].step
    resumed = gang.run(tmp_path / "killed", job, attempt=2)
    assert resumed.codes == {0: 0, 1: 0}, gang.log()
    assert resumed.losses == {step: loss for step, loss in calm.losses.items() if step > newest}
    plain = job | {"data": data | {"datasets": [data["datasets"][0] | {"conditioning": None}]}, "validation": None}
    assert gang.run(tmp_path / "plain", plain).losses[1] != calm.losses[1]
