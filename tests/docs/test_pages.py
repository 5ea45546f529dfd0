"""What the documentation tells people to write and to type is right."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from oarlock_api.trainingjob import TrainingJob
from oarlock_local import patience

from .fences import ROOT, Fence, fences

BIN = Path(sys.executable).parent
OURS = {"oarlock-trainer", "oarlock-local", "oarlock-operator"}
JOB: dict[str, Any] = {
    "apiVersion": "oarlock.dev/v1alpha1",
    "kind": "TrainingJob",
    "metadata": {"name": "flux"},
    "spec": {
        "output": {"persistentVolumeClaim": {"claimName": "output"}},
        "training": {
            "model": {"family": "Flux1", "path": "/output/model"},
            "steps": 100,
            "s3Connections": [{"name": "default"}],
            "data": {"datasets": [{"name": "photos", "source": {"path": "/output/photos"}}]},
        },
    },
}
TYPED = [fence for fence in fences() if fence.commands]
YAML = [fence for fence in fences() if fence.language == "yaml"]


def over(base: Any, given: Any) -> Any:
    """`given` laid over `base`: groups by key, all else replaces."""
    if not isinstance(base, dict) or not isinstance(given, dict):
        return given
    return base | {key: over(base.get(key), value) for key, value in given.items()}


def whole(fragment: dict[str, Any]) -> dict[str, Any]:
    """A job that holds a fragment, by the group that its keys are of."""
    if "spec" in fragment:
        spec = dict(fragment["spec"])
        if "custom" in spec:
            return {**JOB, "spec": spec}
        return dict(over(JOB, fragment))
    if "training" in fragment:
        return dict(over(JOB, {"spec": fragment}))
    (dataset,) = JOB["spec"]["training"]["data"]["datasets"]
    if "metadata" in fragment:
        fragment = {"data": {"datasets": [dataset | fragment]}}
    return dict(over(JOB, {"spec": {"training": fragment}}))


@cache
def words_of_help(program: str, *subcommand: str) -> set[str]:
    asked = [str(BIN / program), *subcommand, "--help"]
    said = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"(?<![\w-])-{1,2}[a-z][\w-]*", said)) | set(
        re.findall(r"^ {2,4}([a-z][\w-]+)", said, re.MULTILINE)
    )


def test_the_site_builds_and_every_link_leads_somewhere(tmp_path: Path) -> None:
    command = [str(BIN / "mkdocs"), "build", "--strict", "--site-dir", str(tmp_path / "site")]
    built = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    assert (tmp_path / "site/index.html").exists()


def test_every_picture_of_the_pages_is_there() -> None:
    named = {
        name for page in ROOT.glob("docs/*.md") for name in re.findall(r"\((pictures/[\w.-]+)\)", page.read_text())
    }
    assert named
    assert [name for name in sorted(named) if not (ROOT / "docs" / name).exists()] == []


@pytest.mark.parametrize("fence", YAML, ids=str)
def test_every_piece_of_a_job_is_one(fence: Fence) -> None:
    for found in yaml.safe_load_all(fence.text):
        if isinstance(found, dict) and found.get("kind", "TrainingJob") != "TrainingJob":
            assert found["apiVersion"]
        elif isinstance(found, dict) and not fence.title:
            TrainingJob.model_validate(whole(found))


@pytest.mark.parametrize("fence", TYPED, ids=str)
def test_every_command_is_run_here_or_says_what_it_needs(fence: Fence, tmp_path: Path) -> None:
    for command in fence.commands:
        if fence.title:
            assert "needs" in fence.title or "takes" in fence.title
            continue
        program, *arguments = shlex.split(command)
        if program == "make":  # `make test` runs this, and a test of its own runs `make demo`
            targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
            assert set(arguments) <= targets
            continue
        shutil.copy(ROOT / "examples/trainingjob.yaml", tmp_path)
        path = f"{BIN}:{os.environ['PATH']}"
        ran = subprocess.run(
            ["bash", "-euc", command], check=False, cwd=tmp_path, env=os.environ | {"PATH": path}, capture_output=True
        )
        assert ran.returncode == 0, (command, ran.stderr.decode())


@pytest.mark.parametrize("fence", TYPED, ids=str)
def test_every_command_of_ours_takes_what_it_is_given(fence: Fence) -> None:
    for command in fence.commands:
        program, *arguments = shlex.split(command)
        name = Path(program).name
        if name not in OURS:
            continue
        plain = [word for word in arguments if not word.startswith("-")]
        if plain:
            assert plain[0] in words_of_help(name), command
        arguments = arguments[: arguments.index("--")] if "--" in arguments else arguments
        flags = {word.split("=")[0] for word in arguments if word.startswith("-")} - {"--help"}
        known = words_of_help(name) | (words_of_help(name, plain[0]) if plain else set())
        assert flags <= known, command


def test_the_command_that_kills_a_rank_by_hand_kills_the_process_of_its_name_and_no_other() -> None:
    (command,) = (
        one for fence in TYPED if fence.page == "docs/rounds.md" for one in fence.commands if "kill -KILL" in one
    )
    script = shlex.split(command)[-1]
    code = "import ctypes, sys; ctypes.CDLL(None).prctl(15, sys.argv[1].encode(), 0, 0, 0); print(flush=True); input()"
    # Numbers that no gang on this machine has.
    ranks = [
        subprocess.Popen([sys.executable, "-c", code, f"rank-{number}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for number in (770123, 7701234)
    ]
    try:
        assert [one.stdout.readline() for one in ranks if one.stdout] == [b"\n", b"\n"]
        subprocess.run(["sh", "-c", script.replace("rank-2", "rank-770123")], check=True, timeout=patience.SECONDS)
        assert ranks[0].wait(patience.SECONDS) == -signal.SIGKILL
        assert ranks[1].poll() is None
    finally:
        for one in ranks:
            one.kill()
            one.communicate()


def test_every_test_that_the_security_page_names_is_there() -> None:
    """What it says that somebody cannot do is held by a test, or not said."""
    files: dict[str, str] = {}
    for folder in ("api", "client", "operator", "trainer", "importer", "tests"):
        for path in (ROOT / folder).rglob("test_*.py"):
            files[path.name] = files.get(path.name, "") + path.read_text()
    page = (ROOT / "SECURITY.md").read_text()
    file, missing, count = "", [], 0
    for named, test in re.findall(r"(\w+\.py)?(?:::(\w+))?(?=[,| ])", page):
        file = named or file
        if named and named not in files:
            missing.append(named)
        if test:
            count += 1
            if f"def {test}(" not in files.get(file, ""):
                missing.append(f"{file}::{test}")
    assert not missing
    assert count > 50, "it names the tests"


def test_every_file_that_contributors_are_led_to_is_there() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text().partition("## Where to look")[2].partition("## Rules")[0]
    below = [
        ROOT,
        *(source for suite in ("api", "client", "operator", "trainer") for source in (ROOT / suite / "src").iterdir()),
    ]
    named = set(re.findall(r"`((?:[\w-]+/)+|[\w/-]+\.(?:py|yaml))`", page))
    assert len(named) > 25
    assert [name for name in sorted(named) if not any((folder / name).exists() for folder in below)] == []
