"""Every place that names the version has the same one."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from release.versions import PLACES, change, current, disagreements, main, newest_heading, places

from .conftest import PROJECTS, ROOT

NOT_READ = re.compile(r"(^|/)tests/|go\.(mod|sum)$|^uv\.lock$|^CHANGELOG\.md$|^bench/")
"""Files whose 0.1.0 is somebody else's, an example, or history."""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The files that name the version, to be written on."""
    for files, _ in PLACES:
        for path in ROOT.glob(files):
            target = tmp_path / path.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
    return tmp_path


def test_the_checkout_has_one_version() -> None:
    assert disagreements(ROOT) == []


@pytest.mark.parametrize("project", PROJECTS.values(), ids=[path.parent.name for path in PROJECTS])
def test_a_distribution_asks_for_others_of_ours_in_its_own_version(project: dict[str, Any]) -> None:
    """What they tell each other changes with a release: pip must not put two releases together."""
    extras = project.get("optional-dependencies", {}).values()
    ours = [need for needs in (project["dependencies"], *extras) for need in needs if need.startswith("oarlock")]
    assert [need for need in ours if not need.endswith(f"=={project['version']}")] == []


def test_a_new_version_is_written_into_every_place(copy: Path) -> None:
    changed = change(copy, "9.8.7")
    assert {*changed} == {place.path for place in places(copy)}
    assert {place.version for place in places(copy)} == {"9.8.7"}


@pytest.mark.parametrize("version", ["0.2", "0.2.0rc1", "0.2.0-rc.1", "v0.2.0", "0.2.0.1"])
def test_a_version_that_helm_and_python_would_spell_in_two_ways_is_refused(
    version: str, copy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("release.versions.ROOT", copy)
    assert main([version]) == 2
    assert "is no version" in capsys.readouterr().err


def test_a_place_that_was_forgotten_is_named_with_its_line(copy: Path) -> None:
    chart = copy / "charts/oarlock/Chart.yaml"
    chart.write_text(re.sub(r"^appVersion: .+$", "appVersion: 7.7.7", chart.read_text(), flags=re.MULTILINE))
    (told,) = disagreements(copy)
    assert re.fullmatch(rf"charts/oarlock/Chart\.yaml:\d+ has 7\.7\.7, and pyproject\.toml {current(copy)}", told)


def test_a_place_that_is_gone_is_an_error_not_an_agreement(copy: Path) -> None:
    (copy / "Dockerfile.operator").write_text("FROM scratch\n")
    (copy / "Dockerfile.trainer").write_text("FROM scratch\n")
    with pytest.raises(ValueError, match=r"no version in Dockerfile\.\*"):
        disagreements(copy)


def test_no_place_is_missing_from_the_list() -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    known = {(place.path, place.line) for place in places(ROOT)}
    version = re.compile(rf"(?<![\d.]){re.escape(current(ROOT))}(?![\d.])")
    unknown = []
    for name in tracked.split():
        path = ROOT / name
        if NOT_READ.search(name) or path.is_symlink() or not path.is_file() or path.suffix in (".png", ".gz"):
            continue
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            if version.search(line) and (name, number) not in known:
                unknown.append(f"{name}:{number}: {line.strip()}")
    assert not unknown, "add them to PLACES"


def test_the_newest_section_of_the_changelog_is_its_first(checkout: Path) -> None:
    assert newest_heading(checkout) == f"{current(checkout)} (2026-01-02)"
