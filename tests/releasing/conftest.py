"""A checkout to release from, and commands that are written down instead of run."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT))

from release.versions import current  # noqa: E402 - the folder of the program is on no path by itself
from release.wanted import Wanted  # noqa: E402

VERSION = current(ROOT)
DIGEST = f"sha256:{'d' * 64}"
PROJECTS = {path: tomllib.loads(path.read_text())["project"] for path in sorted(ROOT.glob("*/pyproject.toml"))}
"""What each distribution says of itself."""
WHEELS = sorted(f"{each['name'].replace('-', '_')}-{VERSION}-py3-none-any.whl" for each in PROJECTS.values())
READY = {
    "builder": "podman",
    "image_prefix": "registry.example.com/oarlock",
    "base": f"python@sha256:{'0' * 64}",
    "snapshot": "20260101T000000Z",
    "chart_repository": "oci://registry.example.com/charts",
    "python_index": "https://packages.example.com/upload/",
}
"""All that a release can be told."""


class Recorder:
    """Runs nothing: writes commands down, and leaves what they would leave."""

    def __init__(
        self, root: Path, *, tag: str = f"v{VERSION}\n", status: str = "", wheels: Sequence[str] = WHEELS
    ) -> None:
        self.root, self.commands, self.wheels = root, list[str](), wheels
        self._answers = {"git tag": tag, "git status": status}

    def __call__(self, command: Sequence[str]) -> str:
        line = " ".join(command)
        self.commands.append(line)
        out = self.root / "out/release"
        for words, paths in {
            "uv build": [out / "wheels" / name for name in self.wheels],
            "helm package": [out / f"oarlock-{VERSION}.tgz"],
            "make --no-print-directory sbom": [out / "oarlock-operator.cdx.json"],
            "make --no-print-directory docs": [self.root / "out/site/index.html"],
        }.items():
            for path in paths if words in line else ():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(words)
        if "--digestfile" in command:
            Path(command[command.index("--digestfile") + 1]).write_text(DIGEST)
        if "inspect" in command:
            return f"{'c' * 64}\n"
        return next((answer for words, answer in self._answers.items() if line.startswith(words)), "")

    def publishing(self) -> list[str]:
        """The commands that bring something to somewhere else."""
        return [line for line in self.commands if {"push", "publish"} & {*line.split()}]


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
