"""Our encoders and our decoder make what FluxPipeline makes: of a tiny model everywhere, of FLUX.1's own weights on a GPU.

FLUX.1's are taken from the folder that OARLOCK_FLUX names.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import full_vocabularies
import pytest
import torch

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.deep

_IN_DIFFUSERS = Path(__file__).parents[2] / "support" / "encoders_in_diffusers.py"
FLUX = os.environ.get("OARLOCK_FLUX", "")
on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
weights = pytest.mark.skipif(not FLUX, reason="OARLOCK_FLUX names no folder with FLUX.1's weights")


def compared(device: str, *models: str | Path) -> list[dict[str, float]]:
    command = [sys.executable, str(_IN_DIFFUSERS), device, *map(str, models)]
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    found: list[dict[str, float]] = json.loads(said.splitlines()[-1])
    return found


@pytest.fixture(scope="module")
def on_cpu(tiny_flux: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, float]]:
    """The tiny model, and one with vocabularies as large as FLUX.1's: importing the pipeline takes longer than both."""
    large = tmp_path_factory.mktemp("large") / "model"
    full_vocabularies.write(tiny_flux, large)
    return compared("cpu", tiny_flux, large)


def test_a_tiny_models_captions_and_pictures_are_encoded_as_by_diffusers_pipeline(
    on_cpu: list[dict[str, float]],
) -> None:
    found, _ = on_cpu
    # Ours are stored in bfloat16, whose rounding is up to 2**-8 of a value.
    assert max(found["t5"], found["clip"], found["latents"]) < 2**-8
    assert found["picture"] < 0.01
    assert found["spread"] > 1.0


def test_captions_cut_by_vocabularies_as_large_as_fluxs_are_encoded_as_by_diffusers_pipeline(
    on_cpu: list[dict[str, float]],
) -> None:
    _, found = on_cpu
    assert max(found["t5"], found["clip"]) < 2**-8


@pytest.mark.gpu
@on_gpu
@weights
@pytest.mark.timeout(900)
def test_flux_own_encoders_and_vae_make_what_they_make_in_diffusers_pipeline(
    record_property: Callable[[str, object], None],
) -> None:
    (found,) = compared("cuda", FLUX)
    for name, value in found.items():
        record_property(name, value)
    assert max(found["t5"], found["clip"], found["latents"]) < 0.02
    assert found["picture"] < 1.0
    assert found["spread"] > 10.0
