"""A checkout to release from, and commands that are written down instead of run."""

from __future__ import annotations

import io
import sys
import tarfile
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import pytest

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT))

from release.versions import current  # noqa: E402 - the folder of the program is on no path by itself
from release.wanted import CommandFailed, Wanted  # noqa: E402

VERSION = current(ROOT)
DIGEST = f"sha256:{'d' * 64}"
PROJECTS = {path: tomllib.loads(path.read_text())["project"] for path in sorted(ROOT.glob("*/pyproject.toml"))}
"""What each distribution says of itself."""
WHEELS = sorted(f"{each['name'].replace('-', '_')}-{VERSION}-py3-none-any.whl" for each in PROJECTS.values())
COMMIT = "a" * 40
READY = {
    "builder": "podman",
    "image_prefix": "registry.example.com/oarlock",
    "base": f"python@sha256:{'0' * 64}",
    "snapshot": "20260101T000000Z",
    "chart_repository": "oci://registry.example.com/charts",
    "python_index": "https://packages.example.com/upload/",
    "python_index_check": "https://packages.example.com/simple/",
}
"""All that a release can be told."""


class Recorder:
    """Runs nothing: writes commands down, and leaves what they would leave."""

    def __init__(
        self,
        root: Path,
        *,
        tag: str = f"v{VERSION}\n",
        status: str = "",
        wheels: Sequence[str] = WHEELS,
        there: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """`there`: what is found by a look whose command has these words in it; of a chart, its one file."""
        self.root, self.commands, self.wheels, self.there = root, list[str](), wheels, there
        self._answers = {"git tag": tag, "git status": status, "git rev-parse": f"{COMMIT}\n", "docker push": DIGEST}

    def __call__(self, command: Sequence[str], *, look: bool = False) -> str:
        line = " ".join(command)
        self.commands.append(line)
        if look:
            return self._look(line)
        out = self.root / "out/release"
        for words, paths in {
            "uv build": [out / "wheels" / name for name in self.wheels],
            "make --no-print-directory sbom": [out / "oarlock-operator.cdx.json"],
            "make --no-print-directory docs": [self.root / "out/site/index.html"],
        }.items():
            for path in paths if words in line else ():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(words)
        if " package " in line:
            write_chart(out / f"oarlock-{VERSION}.tgz", "ours")
        if "--digestfile" in command:
            Path(command[command.index("--digestfile") + 1]).write_text(DIGEST)
        if "inspect" in command:
            return f"{'c' * 64}\n"
        return next((answer for words, answer in self._answers.items() if line.startswith(words)), "")

    def _look(self, line: str) -> str:
        found = next((found for words, found in self.there.items() if words in line), None)
        if found is None:
            raise CommandFailed(f"{line}: exit 1\nERROR: oarlock:{VERSION}: not found")
        if " pull " in line:
            write_chart(Path(line.split(" --destination ")[1]) / "chart.tgz", found)
        return found

    def publishing(self) -> list[str]:
        """The commands that bring something to somewhere else."""
        return [line for line in self.commands if {"push", "publish"} & {*line.split()}]


def write_chart(path: Path, content: str) -> None:
    """A package with one file in it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as archive:
        file = tarfile.TarInfo("oarlock/Chart.yaml")
        file.size = len(content)
        archive.addfile(file, io.BytesIO(content.encode()))


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """This checkout with an empty folder for what is made, and a CHANGELOG whose newest section is the version's."""
    root = tmp_path / "checkout"
    root.mkdir()
    for path in ROOT.iterdir():
        if path.name not in ("out", "CHANGELOG.md"):
            (root / path.name).symlink_to(path)
    (root / "CHANGELOG.md").write_text(f"# Changelog\n\n## {VERSION} (2026-01-02)\n- All of it.\n\n## 0.0.1\n- Less.\n")
    return root


def wanted(root: Path, *, publish: bool = False, **chosen: str) -> Wanted:
    """A release of that checkout, by default with all that it can be told."""
    return Wanted(root=root, out=root / "out/release", version=VERSION, publish=publish, **{**READY, **chosen})
