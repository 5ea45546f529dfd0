"""A real run of FLUX.1 Depth: what a reference shows is learnt by any ranks, drawn and exported."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import beside
import pytest
import torch
from diffusers import FluxControlPipeline  # before ours: a rank imports less of diffusers
from PIL import Image, ImageOps

from oarlock_trainer.models.family import Reference
from oarlock_trainer.models.flux import tiny

if TYPE_CHECKING:
    from pathlib import Path

    from gang import Gang

pytestmark = pytest.mark.deep


def test_control_pictures_are_learnt_by_any_ranks_drawn_and_exported(gang: Gang, tmp_path: Path) -> None:
    model, depths, drawn = tmp_path / "tiny", tmp_path / "depths", tmp_path / "drawn"
    tiny.write(model, beside=Reference.BESIDE)
    for folder in (depths, drawn):
        folder.mkdir()
    for path in gang.pictures.glob("*.png"):
        depth = ImageOps.grayscale(Image.open(path)).convert("RGB")
        depth.save(depths / path.name)
    depth.save(drawn / "boat.png")
    pairs = beside.data(gang, depths, tmp_path / "latents")
    job = beside.training(gang, "Depth", model, pairs, drawn, steps=6, checkpoint={"intervalSteps": 3})
    calm = gang.run(tmp_path / "calm", job)
    assert calm.codes == {0: 0, 1: 0}, gang.log()
    assert (tmp_path / "calm/validation/step-4/boat-64x48.png").is_file()
    pipeline = FluxControlPipeline.from_pretrained(tmp_path / "calm/model", dtype=torch.bfloat16)
    assert pipeline.transformer.config.in_channels == 8 * tiny.LATENT_CHANNELS
    live = beside.data(gang, depths, tmp_path / "latents", imageEmbeds={"mode": "OnTheFly"})

    def leave(event: dict[str, Any]) -> None:
        if event["event"] == "step" and event["step"] == 3:
            gang.ask_to_leave()

    settings = job | {"data": live, "validation": None}
    first = gang.run(tmp_path / "disturbed", settings, on_event=leave)
    assert set(first.codes.values()) == {86}, gang.log()
    second = gang.run(tmp_path / "disturbed", settings, attempt=2)
    assert first.losses | second.losses == pytest.approx(calm.losses, rel=1e-6)
    alone = gang.run(tmp_path / "alone", settings | {"gradientAccumulation": 2}, ranks=1)
    assert alone.codes == {0: 0}, gang.log()
    # The same samples, added up in another order in bfloat16.
    assert alone.losses == pytest.approx(calm.losses, rel=2e-3)
    for path in depths.iterdir():
        ImageOps.invert(Image.open(path)).save(path)
    other = settings | {"data": beside.data(gang, depths, tmp_path / "others")}
    assert gang.run(tmp_path / "other", other).losses[1] != calm.losses[1], "it is given what the reference shows"
