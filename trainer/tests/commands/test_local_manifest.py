"""A TrainingJob's manifest run on one machine, and what is told of one that is wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from oarlock_api.contract.job_file import parse_job_file
from oarlock_trainer.cli import main
from oarlock_trainer.commands import local_manifest
from oarlock_trainer.runtime.errors import ConfigurationError
from oarlock_trainer.runtime.job import parse_training

if TYPE_CHECKING:
    from pathlib import Path


def manifest(folder: Path, *, nodes: int = 1, **training: Any) -> Path:
    job = {
        "apiVersion": "oarlock.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": "flux"},
        "spec": {
            "nodes": nodes,
            "gpusPerNode": 0,
            "output": {"persistentVolumeClaim": {"claimName": "out"}, "mountPath": "/the-claim"},
            "training": {
                "model": {"family": "Flux1", "path": "/models/flux"},
                "steps": 1,
                "resolution": 64,
                "s3Connections": [{"endpoint": "https://s3", "credentialsSecretRef": {"name": "keys"}}],
                "tracking": [{"name": "figures", "type": "Wandb", "secretRef": {"name": "keys"}}],
                "data": {"datasets": [dataset()]},
                **training,
            },
        },
    }
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump(job))
    return path


def dataset(**fields: Any) -> dict[str, Any]:
    return {"name": "photos", "source": {"path": "/the-claim/photos"}, **fields}


def complaint(path: Path) -> str:
    with pytest.raises(ConfigurationError) as refused:
        local_manifest.read_manifest(path)
    return str(refused.value)


def test_a_job_of_this_machine_has_its_paths_here_and_no_secrets(tmp_path: Path) -> None:
    paths = [f"/the-claim={tmp_path}", f"/the-claim/photos={tmp_path}/far"]
    with local_manifest.written(manifest(tmp_path), paths) as path:
        file = parse_job_file(path.read_text())
    training = parse_training(file)
    assert file.output_directory == f"{tmp_path}/flux"
    assert training.data.datasets[0].source.path == f"{tmp_path}/far"
    assert training.model.path == "/models/flux"
    assert training.s3_connections[0].credentials_secret_ref is None
    assert training.tracking[0].secret_ref is None
    assert file.paths == {"/the-claim": str(tmp_path), "/the-claim/photos": f"{tmp_path}/far"}
    assert not path.exists()


def test_an_output_that_is_not_on_this_machine_is_made_nowhere(tmp_path: Path) -> None:
    with (
        pytest.raises(ConfigurationError, match="--path /the-claim=HERE"),
        local_manifest.written(manifest(tmp_path), []),
    ):
        raise AssertionError("no job file is written")


@pytest.mark.parametrize("command", ["train", "preprocess"])
def test_commands_take_one_job_and_say_so(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], ["job.json", "-f", "job.yaml"]):
        with pytest.raises(SystemExit) as left:
            main([command, *arguments])
        assert left.value.code == 2
    assert main([command, "-f", str(manifest(tmp_path))]) == 85
    assert "--path /the-claim=HERE" in capsys.readouterr().err


def test_a_job_of_several_nodes_trains_on_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OARLOCK_CONFIG", "MACHINE_RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "")  # restored afterwards, whatever the command sets
    assert main(["train", "-f", str(manifest(tmp_path, nodes=2)), "--path", f"/the-claim={tmp_path}"]) == 85
    assert "nodes is 2, but here is one machine" in capsys.readouterr().err


@pytest.mark.deep
def test_preprocess_fills_the_caches_of_a_manifest_for_several_nodes_and_again_when_pictures_come(
    tiny_flux: Path, pictures: Path, tmp_path: Path
) -> None:
    photos, names = tmp_path / "photos", sorted(path.stem for path in pictures.glob("*.png"))[:3]
    photos.mkdir()
    command = [sys.executable, "-m", "oarlock_trainer", "preprocess", "-f", str(manifest(tmp_path, nodes=4))]
    command += ["--path", f"/the-claim={tmp_path}", "--path", f"/models/flux={tiny_flux}"]
    encoded = []
    for some in (names[:2], names[2:]):
        for name in some:
            for suffix in (".png", ".txt"):
                (photos / f"{name}{suffix}").write_bytes((pictures / f"{name}{suffix}").read_bytes())
        environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo"}
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stderr
        encoded.append(json.loads((tmp_path / "flux" / "reports" / "data.json").read_text())["latents"]["records"])
    assert encoded == [2, 3]


def test_what_is_no_job_is_told_by_its_field(tmp_path: Path) -> None:
    assert "spec.training.batchSize: " in complaint(manifest(tmp_path, batchSize=0))


@pytest.mark.parametrize("pair", ["output", "output=/here", "/output="])
def test_pairs_of_paths_are_explained(pair: str) -> None:
    with pytest.raises(ConfigurationError, match=f"--path {pair}: say POD=HERE"):
        local_manifest.read_paths([pair])


def test_names_that_the_api_server_does_not_know_are_refused_as_it_would(tmp_path: Path) -> None:
    assert "spec.training.batch_size: there is no such field; did you mean batchSize?" in complaint(
        manifest(tmp_path, batch_size=2)
    )


def test_a_misspelled_field_is_told_with_the_one_that_was_meant_and_nothing_else(tmp_path: Path) -> None:
    parquet = {"location": {"path": "/t.parquet"}, "filenameColum": "file"}
    job = manifest(tmp_path, batchsize=2, data={"datasets": [dataset(metadata={"parquet": parquet})]})
    meant = "there is no such field; did you mean"
    assert complaint(job).splitlines()[1:] == [
        f"  spec.training.data.datasets[0].metadata.parquet.filenameColum: {meant} filenameColumn?",
        f"  spec.training.batchsize: {meant} batchSize?",
    ]


def test_a_field_that_is_like_none_is_told_with_those_that_there_are(tmp_path: Path) -> None:
    crop = {"aspect": "Square", "gravity": "north"}
    found = complaint(manifest(tmp_path, data={"datasets": [dataset(crop=crop)]}))
    assert found.splitlines()[1:] == [
        "  spec.training.data.datasets[0].crop.gravity: there is no such field; there are aspect, aspects, style"
    ]


def test_a_list_that_is_too_short_is_told(tmp_path: Path) -> None:
    found = complaint(manifest(tmp_path, data={"datasets": []}))
    assert "spec.training.data.datasets: " in found
    assert "at least 1" in found
