"""Building: once, in turns, never half."""

import io
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from oarlock_local.binaries import (
    ARGO_RULES,
    COSCHEDULING,
    HELM,
    HELM_3,
    HELM_DOCS,
    KUEUE,
    KWOK,
    PROMTOOL,
    VERSITYGW,
    VOLCANO_CONTROLLERS,
    VOLCANO_SCHEDULER,
    Part,
    cache_key,
    control_plane_parts,
    modules_folder,
    node_parts,
)
from oarlock_local.build import READY_MADE, binaries, build_into, built
from oarlock_local.cli import main
from oarlock_local.errors import BuildError

needs_go = pytest.mark.skipif(shutil.which("go") is None, reason="Go is not installed")
ASKED_FOR = (COSCHEDULING, KUEUE, KWOK, VOLCANO_CONTROLLERS, VOLCANO_SCHEDULER)
"""What only a target of its own builds."""
TOOLS = (ARGO_RULES, HELM, HELM_3, HELM_DOCS, PROMTOOL, VERSITYGW, *ASKED_FOR)
HELLO = Part(binary="hello", module="hello", names=("hallo", "bonjour"))


@pytest.fixture
def modules(tmp_path: Path) -> Path:
    module = tmp_path / "modules/hello"
    module.mkdir(parents=True)
    (module / "go.mod").write_text("module example.test/hello\n\ngo 1.21\n")
    (module / "main.go").write_text('package main\n\nfunc main() { println("hello") }\n')
    return module.parent


@needs_go
def test_every_name_of_a_program_starts_it(modules: Path, tmp_path: Path) -> None:
    build_into(tmp_path / "bin", [HELLO], modules, io.StringIO())
    for name in ("hello", "hallo", "bonjour"):
        assert subprocess.run([tmp_path / "bin" / name], check=True, capture_output=True).stderr == b"hello\n"


@needs_go
def test_of_two_builders_one_builds_and_both_find_the_work_done(modules: Path, tmp_path: Path) -> None:
    outputs = [io.StringIO(), io.StringIO()]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda out: build_into(tmp_path / "bin", [HELLO], modules, out), outputs))
    assert sum("done" in out.getvalue() for out in outputs) == 1
    assert (tmp_path / "bin/bonjour").exists()


@needs_go
def test_a_part_that_does_not_build_leaves_no_program_and_shows_the_compilers_words(
    modules: Path, tmp_path: Path
) -> None:
    (modules / "hello/main.go").write_text("package main\n\nfunc main() { undefinedThing() }\n")
    with pytest.raises(BuildError, match="undefinedThing"):
        build_into(tmp_path / "bin", [HELLO], modules, io.StringIO())
    assert not (tmp_path / "bin/hello").exists()


@needs_go
def test_a_build_is_finished_after_an_interruption(modules: Path, tmp_path: Path) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / ".hello.unfinished").write_text("half a program")
    (folder / ".hallo.unfinished").symlink_to("nowhere")
    build_into(folder, [HELLO], modules, io.StringIO())
    assert subprocess.run([folder / "hallo"], check=True, capture_output=True).stderr == b"hello\n"


def test_the_cache_key_follows_sources_versions_and_flags(modules: Path) -> None:
    before = cache_key(modules, [HELLO])
    assert cache_key(modules, [HELLO]) == before
    assert cache_key(modules, [replace(HELLO, tags=("seccomp",))]) != before
    (modules / "hello/go.sum").write_text("changed")
    assert cache_key(modules, [HELLO]) != before


@pytest.mark.parametrize("seccomp", [True, False])
def test_every_part_has_its_module_with_pinned_checksums(*, seccomp: bool) -> None:
    for part in (*node_parts(seccomp=seccomp), *TOOLS):
        module = modules_folder() / part.module
        assert (module / "go.mod").is_file()
        # A module that needs no other has no checksums.
        assert (module / "go.sum").is_file() or "require" not in (module / "go.mod").read_text()


def test_coredns_is_made_of_the_libraries_that_kubernetes_is_made_of() -> None:
    """Each is compiled once for both, which takes more than a minute off the first build."""
    pins = {}
    for module in ("kubernetes", "coredns"):
        text = (modules_folder() / module / "go.mod").read_text()
        pins[module] = dict(re.findall(r"^\t(\S+) (v\S+)", text, re.MULTILINE))
    both = pins["kubernetes"].keys() & pins["coredns"].keys()
    assert {"k8s.io/client-go", "google.golang.org/grpc", "golang.org/x/net"} <= both
    assert {name: pins["coredns"][name] for name in both} == {name: pins["kubernetes"][name] for name in both}


def test_ready_made_programs_are_used_as_they_are(tmp_path: Path) -> None:
    for part in control_plane_parts():
        for name in part.programs:
            (tmp_path / name).touch()
    assert binaries(nodes=False, environ={READY_MADE: str(tmp_path)}) == tmp_path


def test_a_tool_is_looked_for_in_the_ready_made_folder_too(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="lacks kwok"):
        built(KWOK, environ={READY_MADE: str(tmp_path)})
    (tmp_path / "kwok").touch()
    assert built(KWOK, environ={READY_MADE: str(tmp_path)}) == tmp_path / "kwok"


def test_no_cluster_needs_the_tools() -> None:
    assert not {*TOOLS} & {
        *node_parts(seccomp=True),
        *control_plane_parts(),
    }


def test_all_is_built_before_the_tests_but_what_a_target_of_its_own_asks_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for part in (*node_parts(seccomp=True), *TOOLS):
        for name in (part.binary, *part.names):
            (tmp_path / name).touch()
    monkeypatch.setenv(READY_MADE, str(tmp_path))
    assert main(["build"]) == 0
    told = {Path(line) for line in capsys.readouterr().out.splitlines()}
    assert told == {tmp_path, *(tmp_path / part.binary for part in TOOLS if part not in ASKED_FOR)}


def test_a_ready_made_folder_that_lacks_programs_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=r"lacks bridge, containerd.*coredns"):
        binaries(nodes=True, environ={READY_MADE: str(tmp_path)})


def test_without_a_compiler_the_message_says_what_to_install(modules: Path, tmp_path: Path) -> None:
    program = (
        "import io, pathlib, sys; from oarlock_local import build; from oarlock_local.binaries import Part\n"
        "try: build.build_into(pathlib.Path(sys.argv[1]), [Part('a', 'hello')], pathlib.Path(sys.argv[2]), io.StringIO())\n"
        "except build.BuildError as error: print(error)"
    )
    result = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "bin"), str(modules)],
        env={**os.environ, "PATH": "/nonexistent"},
        check=True,
        capture_output=True,
        text=True,
    )
    assert "go and gcc not found" in result.stdout
