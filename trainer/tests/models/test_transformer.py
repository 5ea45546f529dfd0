"""Weights come from the files as they are, and what does not fit the configuration is told by its name."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
import torch
from safetensors.torch import load_file, save_file

from oarlock_trainer.models import transformer
from oarlock_trainer.models.classes import imported
from oarlock_trainer.models.flux.family import FLUX1
from oarlock_trainer.runtime.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

WEIGHTS = "transformer/diffusion_pytorch_model.safetensors"


def test_the_weights_are_those_that_diffusers_loads(tiny_flux: Path) -> None:
    theirs = (
        imported(FLUX1.transformer)
        .from_pretrained(tiny_flux / "transformer", dtype=torch.bfloat16, low_cpu_mem_usage=False)
        .state_dict()
    )
    ours = transformer.load(tiny_flux).state_dict()
    assert ours.keys() == theirs.keys()
    for name, weight in ours.items():
        assert torch.equal(weight, theirs[name])
        assert weight.dtype is torch.bfloat16


def test_training_a_loaded_model_leaves_its_files_alone(tiny_flux: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny_flux / "transformer", tmp_path / "transformer")
    before = (tmp_path / WEIGHTS).read_bytes()
    model = transformer.load(tmp_path)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1.0)
    assert (tmp_path / WEIGHTS).read_bytes() == before


def test_blank_weights_are_zero_and_read_no_file(tiny_flux: Path, tmp_path: Path) -> None:
    (tmp_path / "transformer").mkdir()
    shutil.copyfile(tiny_flux / "transformer/config.json", tmp_path / "transformer/config.json")
    parameters = dict(transformer.load(tmp_path, blank=True).named_parameters())
    assert parameters.keys() == dict(transformer.load(tiny_flux).named_parameters()).keys()
    assert all(not parameter.any() and parameter.requires_grad for parameter in parameters.values())


BIAS = "proj_out.bias"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({BIAS: None}, r"1 weights are not those of its config.json, such as proj_out.bias: missing"),
        ({"more": torch.zeros(3)}, r"such as more: \(3,\) instead of none"),
        ({BIAS: torch.zeros(3)}, r"such as proj_out.bias: \(3,\) instead of \(16,\)"),
    ],
    ids=["missing", "more", "another shape"],
)
def test_weights_of_another_model_are_the_jobs_fault(
    change: dict[str, torch.Tensor | None], said: str, tiny_flux: Path, tmp_path: Path
) -> None:
    shutil.copytree(tiny_flux / "transformer", tmp_path / "transformer")
    weights = load_file(tmp_path / WEIGHTS) | change
    kept = {name: weight for name, weight in weights.items() if weight is not None}
    save_file(kept, tmp_path / WEIGHTS, metadata={"format": "pt"})
    with pytest.raises(ConfigurationError, match=said):
        transformer.load(tmp_path)
