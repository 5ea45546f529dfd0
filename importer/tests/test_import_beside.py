"""Files that SimpleTuner finds by rules of its own: its examples, config.env beside config.json, and its usual data sets."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from oarlock_api import manifest
from oarlock_trainer.cli import main

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def run(
    tmp_path: Path, simple: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[dict[str, Any], str]]:
    """Import root/PLACE/config.json with some options changed; the spec, or nothing, and the report."""

    def call(place: str, **changed: Any) -> tuple[dict[str, Any], str]:
        config = tmp_path / "root" / place / "config.json"
        config.parent.mkdir(parents=True, exist_ok=True)
        config.write_text(json.dumps(simple | changed))
        code = main(["import-simpletuner", str(config)])
        told = capsys.readouterr()
        return (manifest.load(told.out)["spec"] if code == 0 else {}), told.err

    return call


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, Any], None]:
    """Write a file below root: text as it is, other things as JSON."""

    def call(place: str, content: Any) -> None:
        path = tmp_path / "root" / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))

    return call


@pytest.mark.parametrize(
    ("place", "named", "lies"),
    [
        ("config", "config/data.json", "config/data.json"),
        ("config/boats", "config/boats/data.json", "config/boats/data.json"),
        ("config/boats", "data.json", "config/boats/data.json"),
        ("simpletuner/examples/boats", "config/examples/data.json", "simpletuner/examples/data.json"),
        ("simpletuner/examples/boats", "simpletuner/examples/data.json", "simpletuner/examples/data.json"),
        ("config/boats", "config/examples/data.json", "simpletuner/examples/data.json"),
    ],
)
def test_a_file_is_found_by_simpletuners_rules(
    place: str,
    named: str,
    lies: str,
    *,
    run: Callable[..., tuple[dict[str, Any], str]],
    write: Callable[[str, Any], None],
    folder: dict[str, Any],
) -> None:
    write(lies, [folder])
    spec, said = run(place, data_backend_config=named)
    assert spec, said


def test_a_file_is_found_from_where_the_command_is_called(
    run: Callable[..., tuple[dict[str, Any], str]],
    write: Callable[[str, Any], None],
    folder: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write("elsewhere/sets/data.json", [folder])
    assert "is not found here" in run("config", data_backend_config="sets/data.json")[1]
    monkeypatch.chdir(tmp_path / "root/elsewhere")
    assert run("config", data_backend_config="sets/data.json")[0]


def test_the_data_sets_beside_the_configuration_are_taken_where_none_are_named(
    run: Callable[..., tuple[dict[str, Any], str]], write: Callable[[str, Any], None], folder: dict[str, Any]
) -> None:
    write("config/multidatabackend.json", [folder])
    assert run("config", data_backend_config=None)[0]["training"]["data"]["datasets"][0]["name"] == "boats"


def test_config_env_beside_config_json_says_how_simpletuner_is_launched(
    run: Callable[..., tuple[dict[str, Any], str]], write: Callable[[str, Any], None], folder: dict[str, Any]
) -> None:
    write("config/multidatabackend.json", [folder])
    write("config/config.env", "TRAINING_NUM_PROCESSES=4\nTRAINING_DYNAMO_BACKEND=inductor\nSEED=7\n")
    spec, said = run("config", num_processes=2)
    assert spec["gpusPerNode"] == 4
    assert spec["training"]["compile"]["mode"] == "Default"
    assert spec["training"]["seed"] == 42
    assert "config/config.env: num_processes: handed to accelerate" in said
    assert "config.json: num_processes: config/config.env outranks it" in said
    write("config/boats/config.env", "TRAINING_NUM_PROCESSES=8\n")
    assert run("config/boats", data_backend_config="config/multidatabackend.json")[0]["gpusPerNode"] == 8


def test_what_is_wrong_in_config_env_has_its_own_line(
    run: Callable[..., tuple[dict[str, Any], str]], write: Callable[[str, Any], None], folder: dict[str, Any]
) -> None:
    write("config/multidatabackend.json", [folder])
    write("config/config.env", "# GPUs\nTRAINING_NUM_PROCESSES=many\n")
    said = run("config")[1]
    assert "  config/config.env, line 2: num_processes: is no number" in said


def test_a_configuration_that_is_nested_too_deeply_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text("[" * 100_000)
    assert main(["import-simpletuner", str(tmp_path / "config.json")]) == 85
    assert "nested too deeply" in capsys.readouterr().err
