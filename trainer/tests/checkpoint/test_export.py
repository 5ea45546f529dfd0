"""The exported model is a diffusers directory, whole or not there."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from oarlock_api.contract.layout import Owner
from oarlock_trainer.checkpoint import weight_files
from oarlock_trainer.checkpoint.export import Export, mark_of, remove_unfinished
from oarlock_trainer.checkpoint.format import valid_checkpoints
from oarlock_trainer.cli import main
from oarlock_trainer.models import transformer
from oarlock_trainer.ranks import preload

preload.settle_environment()
import torch  # noqa: E402 - reads the environment that was just settled
from diffusers import FluxPipeline  # noqa: E402 - before ours: a rank imports less of diffusers
from saving import Plain, save_alone  # noqa: E402

from oarlock_trainer.engine.engine import MASTER, TensorSlice  # noqa: E402


class Trained(Plain):
    """Keeps a module's weights as the masters of one rank."""

    def __init__(self, module: Any) -> None:
        super().__init__()
        self.weights = module
        self._parts = [
            TensorSlice(name=name, slot=MASTER, start=0, values=weight.detach().float().flatten())
            for name, weight in module.named_parameters()
        ]


@pytest.fixture(scope="module")
def trained(tiny_flux: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The module, and the output with its checkpoint."""
    module = transformer.load(tiny_flux)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.125)
    output = tmp_path_factory.mktemp("trained")
    save_alone(output, 10, engine=Trained(module))
    return module, valid_checkpoints(output)[0]


def export(trained: Any, base: Path, output: Path, *, ranks: int = 3) -> Path:
    """As a job's ranks do it, one after the other."""
    exporting = Export(trained[1], base, output / "model", adapters=None)
    exporting.begin()
    for rank in range(ranks):
        exporting.write_share(rank, ranks)
    return exporting.complete()


@pytest.mark.parametrize("largest", [4 * 10**9, 30_000])
def test_an_exported_model_loads_with_diffusers_and_holds_the_trained_weights(
    trained: Any, tiny_flux: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, largest: int
) -> None:
    monkeypatch.setattr(weight_files, "_LARGEST_FILE", largest)
    path = export(trained, tiny_flux, tmp_path)
    files = sorted((path / "transformer").glob("*.safetensors"))
    assert len(files) == 1 if largest > 30_000 else len(files) > 3
    pipeline = FluxPipeline.from_pretrained(path, dtype=torch.bfloat16)
    loaded = pipeline.transformer.state_dict()
    for name, value in trained[0].state_dict().items():
        assert torch.equal(loaded[name], value)
    assert pipeline("a cat", height=32, width=32, num_inference_steps=1, max_sequence_length=32).images[0]


def test_exporting_again_replaces_the_model_and_leaves_nothing_else(
    trained: Any, tiny_flux: Path, tmp_path: Path
) -> None:
    export(trained, tiny_flux, tmp_path)
    (tmp_path / "model" / "stale").write_text("old")
    (tmp_path / ".tmp-model").mkdir()
    export(trained, tiny_flux, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert not (tmp_path / "model" / "stale").exists()


def test_what_earlier_attempts_and_rounds_left_goes_and_what_others_export_does_not(tmp_path: Path) -> None:
    marks = [mark_of(Owner("job", attempt, number)) for attempt, number in ((1, 1), (2, 1), (2, 2))]
    for name in (*(f".tmp-model{mark}" for mark in marks), ".tmp-model", ".tmp-model-abc", "model"):
        (tmp_path / name / "transformer").mkdir(parents=True)
    remove_unfinished(tmp_path / "model")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".tmp-model", ".tmp-model-abc", "model"]


def test_the_base_model_is_not_touched(trained: Any, tiny_flux: Path, tmp_path: Path) -> None:
    base = tmp_path / "base"
    shutil.copytree(tiny_flux, base)
    before = {path: path.read_bytes() for path in base.rglob("*") if path.is_file()}
    (tmp_path / "out").mkdir()
    export(trained, base, tmp_path / "out")
    assert {path: path.read_bytes() for path in base.rglob("*") if path.is_file()} == before


def test_others_can_read_the_exported_model_whatever_the_base_models_modes_are(
    trained: Any, tiny_flux: Path, tmp_path: Path
) -> None:
    base = tmp_path / "base"
    shutil.copytree(tiny_flux, base)
    base.chmod(0o700)
    (base / "vae").chmod(0o500)
    path = export(trained, base, tmp_path / "out")
    closed = [one.relative_to(path) for one in (path, *path.rglob("*")) if one.stat().st_mode & 0o044 != 0o044]
    assert closed == []


def test_a_base_model_of_symbolic_links_is_exported_as_files(trained: Any, tiny_flux: Path, tmp_path: Path) -> None:
    """As in the hub's cache: snapshots/REVISION/vae/config.json -> ../../../blobs/HASH."""
    blobs, snapshot = tmp_path / "hub/blobs", tmp_path / "hub/snapshots/1"
    blobs.mkdir(parents=True)
    for number, source in enumerate(path for path in tiny_flux.rglob("*") if path.is_file()):
        shutil.copyfile(source, blobs / str(number))
        name = snapshot / source.relative_to(tiny_flux)
        name.parent.mkdir(parents=True, exist_ok=True)
        name.symlink_to(Path("../" * (len(name.relative_to(snapshot).parts) + 1), "blobs", str(number)))
    path = export(trained, snapshot, tmp_path / "out")
    assert not [one for one in path.rglob("*") if one.is_symlink()]
    assert (path / "vae/config.json").read_bytes() == (tiny_flux / "vae/config.json").read_bytes()


def test_the_command_exports_what_the_job_would(trained: Any, tiny_flux: Path, tmp_path: Path) -> None:
    output, new = trained[1].path.parents[1], tmp_path / "new"
    assert main(["checkpoints", "export", str(output), "--model", str(tiny_flux), "--to", str(new)]) == 0
    made = export(trained, tiny_flux, tmp_path)
    names = {path.relative_to(made) for path in made.rglob("*") if path.is_file()}
    assert {path.relative_to(new) for path in new.rglob("*") if path.is_file()} == names
    assert all((new / name).read_bytes() == (made / name).read_bytes() for name in names)
