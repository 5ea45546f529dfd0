"""What would break quietly: a module of ours that hides the standard library's, a file without a concept, a wrong version."""

from __future__ import annotations

import operator
import re
import sysconfig
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
DISTRIBUTIONS = sorted(path.parent.name for path in ROOT.glob("*/pyproject.toml"))
VAGUE = {"utils", "util", "helpers", "helper", "common", "manager", "misc"}
SKIPPED = {"__pycache__", "node_modules", "out", "dist", "results"}


def files(folder: Path = ROOT) -> Iterator[Path]:
    """Files of the repository, without what is hidden, made or installed."""
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or path.name in SKIPPED or path.is_symlink():
            continue
        if path.is_dir():
            yield from files(path)
        else:
            yield path


def version_of(folder: str) -> str:
    return str(tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]["version"])


def test_the_standard_library_s_operator_is_the_one_that_python_finds() -> None:
    assert Path(str(operator.__file__)).parent == Path(sysconfig.get_path("stdlib"))


@pytest.mark.parametrize("name", ["operator/__init__.py", "operator/conftest.py", "operator/tests/__init__.py"])
def test_the_operator_s_folder_is_no_package(name: str) -> None:
    assert not (ROOT / name).exists(), "`operator` is a module of the standard library: docs/decisions/0002"


def test_no_folder_of_scripts_holds_a_module_called_operator() -> None:
    found = [
        str(path.relative_to(ROOT)) for path in files() if path.name == "operator.py" or path.stem == "operator.cpython"
    ]
    assert not found, "Python would find it before the standard library's"


def test_every_file_is_named_after_what_it_holds() -> None:
    found = [str(path.relative_to(ROOT)) for path in files() if path.stem.lower() in VAGUE]
    assert not found, "name it after its concept"


def test_the_guards_look_at_the_real_files() -> None:
    seen = {str(path.relative_to(ROOT)) for path in files()}
    assert {"Makefile", "operator/src/oarlock_operator/execute.py", "tests/test_guard.py"} <= seen
    assert not any(name.startswith((".venv", ".git/")) for name in seen)


@pytest.mark.parametrize("folder", DISTRIBUTIONS)
def test_all_distributions_have_the_workspace_s_version(folder: str) -> None:
    assert version_of(folder) == version_of(".")


def test_the_chart_has_the_workspace_s_version_and_leaves_image_tags_to_it() -> None:
    chart = yaml.safe_load((ROOT / "charts/oarlock/Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (version_of("."), version_of("."))
    values = yaml.safe_load((ROOT / "charts/oarlock/values.yaml").read_text())
    assert (values["image"]["tag"], values["trainerImage"]) == ("", "")


IMAGE = re.compile(r"\boarlock/(?:operator|trainer):([0-9][-.\w]*)")


def test_every_default_image_and_every_one_in_the_documentation_has_the_workspace_s_version() -> None:
    kinds = {".py", ".md", ".yaml", ".yml", ".toml", ""}
    found = {
        str(path.relative_to(ROOT)): set(IMAGE.findall(path.read_text(errors="replace")))
        for path in files()
        if path.suffix in kinds or path.name.startswith("Dockerfile")
    }
    named = {name: tags for name, tags in found.items() if tags and "/tests/" not in f"/{name}"}
    assert "operator/src/oarlock_operator/process/settings.py" in named
    wrong = {name: tags for name, tags in named.items() if {tag.rstrip(".") for tag in tags} != {version_of(".")}}
    assert not wrong
