from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest
from fake_api import running

pytestmark = pytest.mark.deep  # an environment is installed anew
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of an environment that holds nothing but the wheel and what it asks for."""
    folder = tmp_path_factory.mktemp("wheel")
    uv = shutil.which("uv") or str(ROOT / ".tools/bin/uv")
    environment = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}

    def run(*command: str) -> None:
        ended = subprocess.run([uv, *command], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stderr

    for name in ("oarlock-api", "oarlock"):
        run(
            "build",
            "--quiet",
            "--wheel",
            "--package",
            name,
            "--out-dir",
            str(folder),
            "--build-constraints",
            "build.txt",
        )
    run("venv", "--quiet", "--python", sys.executable, str(folder / "env"))
    locked = folder / "locked.txt"
    run("export", "--quiet", "--frozen", "--no-dev", "--package", "oarlock", "--no-emit-workspace", "-o", str(locked))
    python = str(folder / "env/bin/python")
    run("pip", "install", "--quiet", "--python", python, "-r", str(locked), "--require-hashes")
    run("pip", "install", "--quiet", "--python", python, "--no-deps", *map(str, folder.glob("*.whl")))
    run("pip", "check", "--python", python)
    return folder / "env/bin"


def test_the_wheel_brings_all_that_the_command_needs_and_no_torch(installed: Path) -> None:
    ended = subprocess.run(
        [installed / "oarlock", "ls", "--kubeconfig", "/nowhere"], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 6, ended.stderr
    listed = {path.name.partition("-")[0] for path in installed.parent.glob("lib/*/site-packages/*.dist-info")}
    assert {"oarlock", "oarlock_api", "kubernetes"} <= listed
    assert not listed & {"torch", "numpy", "kopf", "oarlock_operator", "oarlock_trainer"}


def test_without_its_extra_the_page_says_in_one_line_what_to_install(installed: Path, tmp_path: Path) -> None:
    with running() as api:
        config = api.kubeconfig(tmp_path)
        ended = subprocess.run(
            [installed / "oarlock", "web", "--kubeconfig", config], capture_output=True, text=True, check=False
        )
    assert ended.returncode == 8
    assert "pip install 'oarlock[web]'" in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_the_wheel_has_what_the_page_is_drawn_with(installed: Path) -> None:
    (wheel,) = installed.parents[1].glob("oarlock-*.whl")
    with ZipFile(wheel) as content:
        names = set(content.namelist())
    static = ROOT / "client/src/oarlock/web/static"
    assert {f"oarlock/web/static/{one.name}" for one in static.iterdir()} | {"oarlock/report/style.css"} <= names


@pytest.mark.parametrize(
    "module", ["oarlock", "oarlock.explain", "oarlock.facts", "oarlock.report", "oarlock.rows", "oarlock.cli.main"]
)
def test_what_asks_no_cluster_imports_no_client_of_one(installed: Path, module: str) -> None:
    code = f"import sys, {module}; print(*sorted({{'kubernetes', 'urllib3', 'pydantic', 'rich'}} & set(sys.modules)))"
    told = subprocess.run([installed / "python", "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout == "\n"
