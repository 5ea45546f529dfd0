"""A real run of FLUX.1 Fill: what is transparent in references is learnt by any ranks, kept or encoded on the fly."""

from __future__ import annotations

from typing import TYPE_CHECKING

import beside
import numpy as np
import pytest
import torch
from diffusers import FluxFillPipeline  # before ours: a rank imports less of diffusers
from PIL import Image

from oarlock_trainer.models.family import Reference
from oarlock_trainer.models.flux import tiny

if TYPE_CHECKING:
    from pathlib import Path

    from gang import Gang

pytestmark = pytest.mark.deep


def test_holes_are_filled_in_by_any_ranks_drawn_and_exported(gang: Gang, tmp_path: Path) -> None:
    model, holes, drawn = tmp_path / "tiny", tmp_path / "holes", tmp_path / "drawn"
    tiny.write(model, beside=Reference.HOLES)
    for folder in (holes, drawn):
        folder.mkdir()
    for path in gang.pictures.glob("*.png"):
        picture = Image.open(path).convert("RGBA")
        alpha = np.full((picture.height, picture.width), 255, dtype=np.uint8)
        alpha[picture.height // 3 :, : picture.width // 2] = 0
        picture.putalpha(Image.fromarray(alpha))
        picture.save(holes / f"{path.stem}.webp", lossless=True)
    picture.save(drawn / "boat.png")
    pairs = beside.data(gang, holes, tmp_path / "latents")
    job = beside.training(gang, "Fill", model, pairs, drawn, steps=4)
    calm = gang.run(tmp_path / "calm", job)
    assert calm.codes == {0: 0, 1: 0}, gang.log()
    assert (tmp_path / "calm/validation/step-4/boat-64x48.png").is_file()
    pipeline = FluxFillPipeline.from_pretrained(tmp_path / "calm/model", dtype=torch.bfloat16)
    assert pipeline.transformer.config.in_channels == 4 * (2 * tiny.LATENT_CHANNELS + 64)
    live = beside.data(gang, holes, tmp_path / "latents", imageEmbeds={"mode": "OnTheFly"})
    alone = gang.run(tmp_path / "alone", job | {"data": live, "gradientAccumulation": 2, "validation": None}, ranks=1)
    assert alone.codes == {0: 0}, gang.log()
    # The same samples, added up in another order in bfloat16.
    assert alone.losses == pytest.approx(calm.losses, rel=2e-3)
    for path in list(holes.iterdir()):
        opaque = Image.open(path).convert("RGBA")
        opaque.putalpha(255)
        opaque.save(path.with_suffix(".png"))  # nothing to fill in
        path.unlink()
    whole = beside.data(gang, holes, tmp_path / "others")
    assert gang.run(tmp_path / "whole", job | {"data": whole, "validation": None}).losses[1] != calm.losses[1]
