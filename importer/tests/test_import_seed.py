"""The files of SimpleTuner's guide to several nodes, as they stand there, by the command that a user runs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from oarlock_api import manifest
from oarlock_api.trainingjob import TrainingJob
from oarlock_import.read import accelerate_place
from oarlock_trainer.cli import main

if TYPE_CHECKING:
    from collections.abc import Callable

SEED = Path(__file__).parent / "seed"
"""Blocks of the guide, unchanged: two are the whole of accelerate's file, and what to write into it instead."""


@pytest.fixture
def place(tmp_path: Path, full_rank: dict[str, Any], folder: dict[str, Any]) -> Path:
    """A folder with the guide's webhooks, a config.json that names them as the guide says, and one data set."""
    config = tmp_path / "config"
    config.mkdir()
    shutil.copy(SEED / "webhooks.json", config)
    options = full_rank | json.loads((SEED / "config.json").read_text())
    (config / "config.json").write_text(json.dumps(options, indent=2))
    (config / "multidatabackend.json").write_text(json.dumps([folder]))
    return config


@pytest.fixture
def spec(place: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., dict[str, Any]]:
    """The job's spec with this file of accelerate."""

    def call(accelerate: str) -> dict[str, Any]:
        (place / "accelerate.yaml").write_text(accelerate)
        code = main(["import-simpletuner", str(place / "config.json"), "--accelerate", str(place / "accelerate.yaml")])
        told = capsys.readouterr()
        assert code == 0, told.err
        found: dict[str, Any] = manifest.load(told.out)["spec"]
        return found

    return call


def replaced(block: str) -> str:
    """The guide's file of accelerate with the keys of another block of it in the place of its own."""
    base = (SEED / "default_config.yaml").read_text()
    text = (SEED / block).read_text()
    for line in ("distributed_type: MULTI_GPU\n", "dynamo_config:\n  dynamo_backend: NO\n"):
        if line.partition(":")[0] + ":" in text:
            base = base.replace(line, "")
    return base + text


def test_the_guides_file_of_accelerate_is_imported_as_it_stands(spec: Callable[..., dict[str, Any]]) -> None:
    found = spec((SEED / "default_config.yaml").read_text())
    assert (found["nodes"], found["gpusPerNode"]) == (4, 8)
    assert found["training"]["engine"]["strategy"] == "DDP"
    assert found["training"]["compile"]["mode"] == "None"
    assert found["training"]["precision"] == "BF16"


def test_the_guides_lines_for_deepspeed_are_imported(spec: Callable[..., dict[str, Any]]) -> None:
    found = spec(replaced("deepspeed.yaml"))
    assert (found["nodes"], found["gpusPerNode"]) == (4, 8)
    assert found["training"]["engine"] == {"strategy": "DeepSpeed", "zeroStage": 1, "offloadOptimizer": "None"}
    assert found["training"]["gradientClipping"] == {"method": "Norm", "max": 0.01}


def test_the_guides_lines_for_torch_compile_are_imported(spec: Callable[..., dict[str, Any]]) -> None:
    found = spec(replaced("compile.yaml"))
    assert found["training"]["compile"] == {"mode": "MaxAutotune", "dynamic": False, "fullGraph": False}


@pytest.mark.parametrize("block", ["deepspeed.yaml", "compile.yaml"])
def test_a_block_of_the_guide_is_a_file_of_accelerate_by_itself(
    block: str, spec: Callable[..., dict[str, Any]]
) -> None:
    assert spec((SEED / block).read_text())["nodes"] == 1


def test_the_guides_webhook_is_imported(spec: Callable[..., dict[str, Any]]) -> None:
    (hook,) = spec((SEED / "default_config.yaml").read_text())["webhooks"]
    assert hook["type"] == "Discord"
    assert hook["urlSecretRef"] == {"name": "boats-webhooks", "key": "webhook-1-url"}


@pytest.mark.parametrize("word", ["NO", "no", "'NO'", "off", "false"])
@pytest.mark.parametrize("key", ["distributed_type", "dynamo_backend"])
def test_no_is_a_word_of_accelerate_however_yaml_reads_it(
    key: str, word: str, spec: Callable[..., dict[str, Any]]
) -> None:
    found = spec(f"{key}: {word}\n")["training"]
    assert (found["engine"]["strategy"], found["compile"]["mode"]) == ("DDP", "None")


def test_lines_that_the_guide_leaves_out_are_asked_for(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copy(SEED / "compress.json", place / "config.json")
    assert main(["import-simpletuner", str(place / "config.json")]) == 85
    said = capsys.readouterr().err
    assert f"{place / 'config.json'}: line 2: ... stands for lines that were left out: write them, or remove it" in said


def test_the_guides_line_for_compression_is_imported(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = json.loads((SEED / "compress.json").read_text().replace("...\n", "\n").replace(",\n    \n}", "}"))
    options = json.loads((place / "config.json").read_text()) | given
    (place / "config.json").write_text(json.dumps(options))
    assert main(["import-simpletuner", str(place / "config.json")]) == 0
    assert manifest.load(capsys.readouterr().out)["spec"]["training"]["data"]["compression"] == "Gzip"


def test_the_file_is_found_where_accelerate_looks_for_it(
    place: Path, no_default_file_of_accelerate: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    no_default_file_of_accelerate.parent.mkdir(parents=True)
    shutil.copy(SEED / "default_config.yaml", no_default_file_of_accelerate)
    assert main(["import-simpletuner", str(place / "config.json")]) == 0
    told = capsys.readouterr()
    job = manifest.load(told.out)["spec"]
    assert (job["nodes"], job["gpusPerNode"]) == (4, 8)
    assert f"{no_default_file_of_accelerate}: num_machines: 4 -> nodes: 4" in told.err


def test_without_a_file_of_accelerate_the_size_and_where_it_was_looked_for_are_told(
    place: Path, no_default_file_of_accelerate: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["import-simpletuner", str(place / "config.json")]) == 0
    said = capsys.readouterr().err
    assert "see that the job's size is meant, 1 x 1 GPUs" in said
    assert f"none is at {no_default_file_of_accelerate}, where accelerate looks" in said


@pytest.mark.parametrize(
    ("environment", "place"),
    [
        ({"HF_HOME": "/a"}, "/a/accelerate/default_config.yaml"),
        ({"XDG_CACHE_HOME": "/b"}, "/b/huggingface/accelerate/default_config.yaml"),
        ({}, "~/.cache/huggingface/accelerate/default_config.yaml"),
    ],
)
def test_accelerates_place_is_accelerates_own(environment: dict[str, str], place: str) -> None:
    assert accelerate_place(environment) == Path(place).expanduser()


@pytest.mark.parametrize(("level", "rules"), [("info", 0), ("warning", 0), ("error", 1), ("critical", 1)])
def test_who_hears_of_faults_alone_gets_the_strictness_of_the_guides_circuit_breaker(
    *, level: str, rules: int, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hook = json.loads((SEED / "webhooks.json").read_text()) | {"log_level": level}
    (place / "webhooks.json").write_text(json.dumps(hook))
    assert main(["import-simpletuner", str(place / "config.json")]) == 0
    told = capsys.readouterr()
    found = TrainingJob.model_validate(manifest.load(told.out)).spec.recovery.rules
    assert [(rule.when.verdict, rule.when.probes, rule.action) for rule in found] == rules * [
        ("Hold", ("thermalMargin", "thermalSlowdown", "powerBrake"), "AvoidNode")
    ]
    assert ("heat and power are warnings here" in told.err) == bool(rules)
