"""Our denoising loop beside diffusers' own pipeline."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from oarlock_trainer.models.flux.code import CODE
from oarlock_trainer.models.flux.family import FLUX1
from oarlock_trainer.models.flux.velocity import pack, unpack
from oarlock_trainer.validation.decoding import PictureDecoder
from oarlock_trainer.validation.sampling import draw_noise

_IN_DIFFUSERS = Path(__file__).parents[1] / "support" / "pictures_in_diffusers.py"


@pytest.fixture(scope="module")
def compared(tiny_flux: Path) -> dict[str, dict[str, float]]:
    """Each case -> how far both pictures are apart, in steps of 0 to 255."""
    command = [sys.executable, str(_IN_DIFFUSERS), str(tiny_flux)]
    found: dict[str, dict[str, float]] = json.loads(
        subprocess.run(
            command, check=True, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"}
        ).stdout
    )
    return found


@pytest.mark.deep
@pytest.mark.parametrize("scale", ["1", "2.5"])
def test_in_float32_our_picture_is_that_of_diffusers_pipeline_but_for_single_roundings(
    compared: dict[str, dict[str, float]], scale: str
) -> None:
    apart = compared[f"float32, scale {scale}"]
    assert apart["most"] <= 1.0
    assert apart["mean"] < 0.001
    assert apart["spread"] > 10.0  # it is no even surface, of which any loop would make the same


@pytest.mark.parametrize("scale", ["1", "2.5"])
def test_in_bfloat16_our_picture_is_that_of_diffusers_pipeline_within_its_rounding(
    compared: dict[str, dict[str, float]], scale: str
) -> None:
    apart = compared[f"bfloat16, scale {scale}"]
    assert apart["most"] <= 8.0
    assert apart["mean"] < 1.0


def test_the_negative_prompt_and_the_guidance_change_the_picture(compared: dict[str, dict[str, float]]) -> None:
    assert compared["float32, scale 1"]["spread"] != compared["float32, scale 2.5"]["spread"]


def test_unpacked_tokens_are_the_latents_that_were_packed() -> None:
    latents = draw_noise(3, FLUX1.grid, channels=4, width=96, height=64)
    assert latents.shape == (1, 4, 8, 12)
    assert torch.equal(unpack(pack(latents), channels=4, height=8, width=12), latents)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_the_decoder_makes_the_cpus_picture_and_leaves_its_memory_to_training(tiny_flux: Path) -> None:
    latents = draw_noise(3, FLUX1.grid, channels=4, width=256, height=256)
    gpu = torch.device("cuda")
    decoder = PictureDecoder(tiny_flux, FLUX1, gpu, code=CODE)
    decoder.decode(latents.to(gpu))  # the libraries keep their work space
    before = torch.cuda.memory_allocated()
    made = decoder.decode(latents.to(gpu))[0]
    assert torch.cuda.memory_allocated() == before
    expected = PictureDecoder(tiny_flux, FLUX1, torch.device("cpu"), code=CODE).decode(latents)[0]
    apart = np.abs(np.asarray(made, dtype=np.float32) - np.asarray(expected, dtype=np.float32))
    assert apart.mean() < 2.0  # of 255: the GPU's is in bfloat16
