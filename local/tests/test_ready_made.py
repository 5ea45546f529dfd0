"""What is on PATH in the right version is not built."""

import io
import shutil
from pathlib import Path

import pytest

from oarlock_local.binaries import HELM, KWOK, PROMTOOL, VERSITYGW, Part, modules_folder, node_parts
from oarlock_local.build import binaries, build_into
from oarlock_local.ready_made import QUESTIONS, Question, on_path

needs_go = pytest.mark.skipif(shutil.which("go") is None, reason="Go is not installed")
TOLD = Part(binary="told", module="told", names=("told-a", "told-b"))
ASKED = dict.fromkeys(TOLD.names, Question("example.test/told"))
SAYS = 'package main\n\nimport "os"\n\nfunc main() { println("told version", os.Args[1], "%s") }\n'


@pytest.fixture
def modules(tmp_path: Path) -> Path:
    """A module that pins v1.2.3 of what its program is made of."""
    module = tmp_path / "modules/told"
    module.mkdir(parents=True)
    (module / "go.mod").write_text("module example.test/here\n\ngo 1.21\n\nrequire (\n\texample.test/told v1.2.3\n)\n")
    return module.parent


def put_on_path(folder: Path, monkeypatch: pytest.MonkeyPatch, *, version: str) -> None:
    """Programs told-a and told-b that say their version."""
    source = folder / "source/says"
    source.mkdir(parents=True)
    (source / "go.mod").write_text("module example.test/says\n\ngo 1.21\n")
    (source / "main.go").write_text(SAYS % version)
    says = Part(binary="says", module="says", names=TOLD.names)
    build_into(folder / "programs", [says], source.parent, io.StringIO())
    monkeypatch.setenv("PATH", str(folder / "programs"), prepend=":")


@needs_go
@pytest.mark.parametrize("version", ["v1.2.3", "1.2.3", "1.2.3+abc"])
def test_programs_of_the_pinned_version_are_found(
    version: str, modules: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_on_path(tmp_path, monkeypatch, version=version)
    assert on_path(TOLD, modules, ASKED).keys() == {"told-a", "told-b"}


@needs_go
@pytest.mark.parametrize("version", ["1.2.4", "1.2.33", "11.2.3", "1.2.3-rc.1", "1.2.3.4", "1.2.3~ds1"])
def test_programs_of_another_version_are_left(
    version: str, modules: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_on_path(tmp_path, monkeypatch, version=version)
    assert on_path(TOLD, modules, ASKED) == {}


@needs_go
def test_of_some_programs_of_a_part_none_is_taken(
    modules: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_on_path(tmp_path, monkeypatch, version="1.2.3")
    (tmp_path / "programs/told-b").unlink()
    assert on_path(TOLD, modules, ASKED) == {}


def test_a_script_is_left_because_it_may_not_work_from_elsewhere(
    modules: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in TOLD.names:
        (tmp_path / name).write_text("#!/bin/sh\necho told version 1.2.3\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert on_path(TOLD, modules, ASKED) == {}


@needs_go
def test_what_is_found_is_copied_and_nothing_is_built(
    modules: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_on_path(tmp_path, monkeypatch, version="1.2.3")
    monkeypatch.setattr("oarlock_local.build.on_path", lambda part, modules: on_path(part, modules, ASKED))
    out = io.StringIO()
    build_into(tmp_path / "bin", [TOLD], modules, out)
    assert out.getvalue() == f" tools      told: taken from {tmp_path / 'programs'}\n"
    assert not (tmp_path / "bin/told-a").is_symlink()
    assert (tmp_path / "bin/told-a").read_bytes() == (tmp_path / "programs/told-a").read_bytes()


def test_every_question_is_of_a_module_that_is_pinned() -> None:
    """One that is pinned nowhere would never be answered rightly."""
    asked = [
        part
        for part in (*node_parts(seccomp=True), HELM, KWOK, PROMTOOL, VERSITYGW)
        if set(part.programs) & {*QUESTIONS}
    ]
    assert {name for part in asked for name in part.programs} == {*QUESTIONS}
    for part in asked:
        pins = (modules_folder() / part.module / "go.mod").read_text()
        assert all(f"{QUESTIONS[name].module} v" in pins for name in part.programs), part.binary


def test_the_clusters_own_programs_answer_their_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(binaries(nodes=True)), prepend=":")
    for part in node_parts(seccomp=True):
        if set(part.programs) <= {*QUESTIONS}:
            assert on_path(part, modules_folder()).keys() == {*part.programs}, part.binary
