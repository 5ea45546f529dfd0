"""The report's last line: the `plan` to run next, which works as it is copied where the files are on this machine."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from PIL import Image

from oarlock_trainer.cli import main

if TYPE_CHECKING:
    from collections.abc import Callable

FLUX = {
    "_class_name": "FluxTransformer2DModel", "num_layers": 19, "num_single_layers": 38, "num_attention_heads": 24,
    "attention_head_dim": 128, "in_channels": 64, "joint_attention_dim": 4096, "pooled_projection_dim": 768,
    "guidance_embeds": True,
}  # fmt: skip
REMARK = "   # HERE: the folder of this machine that pods have under that name"


@pytest.fixture
def line(
    tmp_path: Path, full_rank: dict[str, Any], folder: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """What stands behind "next: " after the import of data sets in these folders, for a model at this path."""

    def call(*data: str, config: str = "config", model: str = "/models/flux", output: bool = True, **more: Any) -> str:
        place = tmp_path / config
        place.mkdir(parents=True, exist_ok=True)
        entries = [folder | {"id": f"set {n}", "instance_data_dir": path} for n, path in enumerate(data)]
        options = full_rank | {"--pretrained_model_name_or_path": model, "--model_type": "lora"} | more
        (place / "config.json").write_text(json.dumps(options))
        (place / "multidatabackend.json").write_text(json.dumps(entries))
        written = ["-o", str(tmp_path / "my job.yaml")] if output else []
        assert main(["import-simpletuner", str(place / "config.json"), *written]) == 0, capsys.readouterr().err
        said = capsys.readouterr().err.splitlines()[-1]
        assert said.startswith("next: ")
        return said.removeprefix("next: ")

    return call


def pictures(place: Path) -> str:
    place.mkdir(parents=True)
    for name in ("one", "two"):
        Image.new("RGB", (1024, 1024)).save(place / f"{name}.png")
        (place / f"{name}.txt").write_text("a boat")
    return str(place)


def model(place: Path) -> str:
    (place / "transformer").mkdir(parents=True)
    (place / "transformer/config.json").write_text(json.dumps(FLUX))
    return str(place)


def run(line: str) -> int:
    program, *arguments = shlex.split(line, comments=True)
    assert program == "oarlock-trainer"
    return main(arguments)


@pytest.mark.parametrize("config", ["config", "config/boats", "."])
def test_relative_paths_begin_around_the_configuration(
    config: str, tmp_path: Path, line: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    pictures(tmp_path / "datasets/boats")
    model(tmp_path / "models/flux")
    said = line("datasets/boats", config=config, model="./models/flux")
    assert said == f"oarlock-trainer plan -f '{tmp_path}/my job.yaml' --path /output={tmp_path}"
    assert run(said) == 0, capsys.readouterr().err
    assert f"{tmp_path}/models/flux has a configuration and no weights" in capsys.readouterr().out


def test_a_folder_is_taken_before_a_repository_of_that_name(tmp_path: Path, line: Callable[..., str]) -> None:
    pictures(tmp_path / "boats")
    line("boats", model="models/flux")
    assert "repo: models/flux" in (tmp_path / "my job.yaml").read_text()
    model(tmp_path / "models/flux")
    line("boats", model="models/flux")
    assert "path: /output/models/flux" in (tmp_path / "my job.yaml").read_text()


def test_each_root_is_named_and_what_has_its_name_here_is_not(
    tmp_path: Path, line: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    pictures(tmp_path / "datasets/boats")
    far = pictures(tmp_path / "far/ships")
    (tmp_path / "prompts.json").write_text(json.dumps({"boat": "a boat on a lake"}))
    said = line("datasets/boats", far, **{"--user_prompt_library": "prompts.json"})
    assert said == f"oarlock-trainer plan -f '{tmp_path}/my job.yaml' --path /output={tmp_path}"
    assert run(said) == 0, capsys.readouterr().err


def test_a_model_that_is_not_here_is_no_reason_to_ask_for_its_place(
    tmp_path: Path, line: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    here = pictures(tmp_path / "datasets/boats")
    said = line("datasets/boats", model="/output/models/flux")
    assert said == f"oarlock-trainer plan -f '{tmp_path}/my job.yaml' --path /output/datasets/boats={here}"
    assert run(said) == 0, capsys.readouterr().err
    assert "the model is not checked" in capsys.readouterr().out


def test_what_is_not_on_this_machine_is_asked_for_root_by_root(
    tmp_path: Path, line: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    said = line("boats", "/data/ships", "more/boats", model="/output/models/flux")
    manifest = tmp_path / "my job.yaml"
    assert said == f"oarlock-trainer plan -f '{manifest}' --path /data/ships=HERE --path /output=HERE{REMARK}"
    for name in ("claim/boats", "claim/more/boats", "ships"):
        pictures(tmp_path / name)
    model(tmp_path / "claim/models/flux")
    filled = said.replace("/output=HERE", f"/output={tmp_path}/claim").replace("ships=HERE", f"ships={tmp_path}/ships")
    assert run(filled) == 0, capsys.readouterr().err


def test_folders_that_the_run_makes_are_not_asked_for(
    tmp_path: Path, line: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    pictures(tmp_path / "boats")
    line("boats", **{"--cache_dir_vae": "cache/vae"})
    assert "path: /output/cache/vae" in (tmp_path / "my job.yaml").read_text()
    main(["import-simpletuner", str(tmp_path / "config/config.json")])
    said = capsys.readouterr().err
    assert "boats is a relative path: put it at /output/boats" in said
    assert "cache/vae is a relative path" not in said


def test_a_manifest_that_was_not_written_to_a_file_is_asked_for(tmp_path: Path, line: Callable[..., str]) -> None:
    far = pictures(tmp_path / "boats")
    assert line(far, output=False) == "oarlock-trainer plan -f JOB.YAML   # JOB.YAML: the file with the manifest"
