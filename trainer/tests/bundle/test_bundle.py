"""The agent in one file: whole, of pure Python, and with nothing to lean on but a Python's own library."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pythons import PYTHONS

from oarlock_trainer.bundle import older_python
from oarlock_trainer.cli import main
from oarlock_trainer.runtime import own_module

if TYPE_CHECKING:
    from collections.abc import Callable

OURS = {"oarlock", "oarlock_api", "oarlock_trainer", "pynvml"}
IMPORT_ALL = """
import importlib, json, sys
from oarlock_trainer.bundle import older_python
older_python.complete()
for name in json.loads(sys.stdin.read()):
    importlib.import_module(name)
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules} - sys.stdlib_module_names)))
"""
LATER = {
    "typing": {"Self", "Never", "LiteralString", "assert_never", "reveal_type", "Required", "NotRequired", "Unpack"},
    "enum": {"verify", "EnumCheck", "member", "nonmember", "FlagBoundary"},
    "contextlib": {"chdir"},
    "hashlib": {"file_digest"},
    "asyncio": {"TaskGroup", "timeout", "Runner"},
}
"""Names that Python 3.10 lacks, and that the bundle does not put there."""


def modules(bundle: Path) -> list[str]:
    with zipfile.ZipFile(bundle) as packed:
        names = [name for name in packed.namelist() if name.endswith(".py") and name != "__main__.py"]
    return [name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in names]


@pytest.mark.parametrize("python", PYTHONS)
def test_every_module_in_it_imports_from_it_and_the_standard_library_alone(
    python: Callable[[], Path], bundle: Path
) -> None:
    code = f"import sys; sys.path.insert(0, {str(bundle)!r})\n{IMPORT_ALL}"
    command = [str(python()), "-I", "-S", "-c", code]
    done = subprocess.run(command, input=json.dumps(modules(bundle)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout)) - {"__main__"} == OURS


@pytest.mark.parametrize("python", PYTHONS)
def test_it_runs_as_the_agent_and_as_any_of_its_helpers(python: Callable[[], Path], bundle: Path) -> None:
    for arguments, words in (
        (["--help"], "oarlock-trainer agent"),
        (["--module", "oarlock_trainer.health.monitor", "--help"], "oarlock_trainer.health.monitor"),
        (["--module", "oarlock_trainer.agent.report.write", "--help"], "oarlock_trainer.agent.report.write"),
    ):
        command = [str(python()), "-I", "-S", str(bundle), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env={})
        assert (done.returncode, done.stderr) == (0, "")
        assert words in done.stdout


def test_its_source_says_nothing_that_python_3_10_does_not_understand(bundle: Path) -> None:
    with zipfile.ZipFile(bundle) as packed:
        for name in (name for name in packed.namelist() if name.endswith(".py")):
            tree = ast.parse(packed.read(name), name, feature_version=(3, 10))
            for node in ast.walk(tree):
                if isinstance(node, ast.ImportFrom):
                    later = {alias.name for alias in node.names} & LATER.get(node.module or "", set())
                    assert not later, name
                    assert node.module != "tomllib", name
                elif isinstance(node, ast.Import):
                    assert "tomllib" not in {alias.name for alias in node.names}, name


def test_an_older_python_is_told_so_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(older_python, "OLDEST", (99, 0))
    with pytest.raises(SystemExit, match="this image's python3 is 3"):
        older_python.complete()


def test_the_command_writes_it_whole_over_an_older_one_and_leaves_nothing_else(tmp_path: Path, bundle: Path) -> None:
    (tmp_path / "agent.pyz").write_text("older")
    assert main(["export-agent", str(tmp_path)]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["agent.pyz"]
    assert (tmp_path / "agent.pyz").read_bytes() == bundle.read_bytes()
    assert (tmp_path / "agent.pyz").stat().st_mode & 0o777 == 0o644


def test_what_is_installed_starts_its_helpers_from_there() -> None:
    assert own_module.command("some.module", "--flag", "x") == [sys.executable, "-m", "some.module", "--flag", "x"]


def test_what_runs_from_the_bundle_starts_its_helpers_from_the_bundle(bundle: Path) -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(bundle)!r})\n"
        "from oarlock_trainer.runtime import own_module; print(own_module.command('m', 'x')[1:])"
    )
    said = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True).stdout
    assert ast.literal_eval(said) == ["-I", "-S", str(bundle), "--module", "m", "x"]
