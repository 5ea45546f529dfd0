"""Pods of local clusters import what is compiled already."""

import sys
from pathlib import Path

import pytest

from oarlock_local.bytecode import compile_sources, sources_in


def test_sources_that_are_shared_and_searched_are_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, other = tmp_path / "shared/package/src", tmp_path / "other"
    for folder in (source, other):
        folder.mkdir(parents=True)
        (folder / "module.py").write_text("answer = 42\n")
        monkeypatch.syspath_prepend(str(folder))
    compile_sources([tmp_path / "shared"])
    assert [path.name.split(".")[0] for path in source.rglob("*.pyc")] == ["module"]
    assert not list(other.rglob("*.pyc"))


def test_a_source_that_does_not_compile_is_left_to_who_imports_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken.py").write_text("def\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    compile_sources([tmp_path])
    assert not list(tmp_path.rglob("*.pyc"))


def test_an_installation_is_nobodys_source() -> None:
    shares = [Path(sys.prefix), Path(sys.base_prefix)]
    assert sources_in(shares, ["", *sys.path, "/nowhere"]) == []
    assert sources_in([Path(sys.prefix).parent], [str(Path(sys.prefix).parent)]) == []
