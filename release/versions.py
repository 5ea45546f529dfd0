"""The one version of everything: where it stands, whether all places agree, and how it is changed.

`python -m release.versions` checks; `python -m release.versions 0.2.0` writes a new one into every place.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
VERSION = r"\d+\.\d+\.\d+"
"""No pre-releases: Helm and Python spell them in two ways, and there is one version."""
PLACES = (
    ("pyproject.toml", r'^version = "({})"'),
    ("*/pyproject.toml", r'^version = "({})"'),
    ("*/pyproject.toml", r'"oarlock[a-z-]*(?:\[[a-z]+\])?==({})"'),
    ("charts/oarlock/Chart.yaml", r"^version: ({})$"),
    ("charts/oarlock/Chart.yaml", r"^appVersion: ({})$"),
    ("charts/oarlock/README.md*", r"oarlock/trainer:({})"),
    ("deploy/*/*.yaml", r'app\.kubernetes\.io/version: "({})"'),
    ("deploy/*/*.yaml", r"oarlock/(?:operator|trainer):({})"),
    ("Dockerfile.*", r"^ARG VERSION=({})$"),
    ("operator/src/oarlock_operator/process/settings.py", r'"oarlock/trainer:({})"'),
    ("README.md", r"oarlock/trainer:({})"),
    ("docs/first-job.md", r"oarlock/trainer:({})"),
    ("docs/images.md", r"^\| `VERSION`, `REVISION` \| both \| ({}),"),
    ("docs/install.md", r"oarlock/trainer:({})"),
    ("docs/install.md", r"oarlock/operator, newTag: ({})\}}"),
)
"""Files, and what stands around the version in them. uv.lock follows from the first three: `uv lock`."""


class Place(NamedTuple):
    """One version, in one line of a file."""

    path: str
    line: int
    version: str


def places(root: Path) -> Iterator[Place]:
    """Every place that names the version; raises ValueError for one of PLACES that is nowhere."""
    for files, pattern in PLACES:
        found = False
        for path in sorted(root.glob(files)):
            text = path.read_text()
            for match in re.finditer(pattern.format(VERSION), text, re.MULTILINE):
                found = True
                yield Place(str(path.relative_to(root)), text.count("\n", 0, match.start()) + 1, match[1])
        if not found:
            raise ValueError(
                f"no version in {files}: it has nothing like {pattern}; change release/versions.py with it"
            )


def current(root: Path) -> str:
    """The version of the whole, as pyproject.toml has it."""
    return next(places(root)).version


def disagreements(root: Path) -> list[str]:
    """The places with another version than pyproject.toml's, each as a sentence."""
    version = current(root)
    return [
        f"{place.path}:{place.line} has {place.version}, and pyproject.toml {version}"
        for place in places(root)
        if place.version != version
    ]


def change(root: Path, version: str) -> list[str]:
    """Write a version into every place; returns the files that changed."""
    changed = []
    for files, pattern in PLACES:
        for path in sorted(root.glob(files)):
            text = path.read_text()
            new = re.sub(
                pattern.format(VERSION),
                lambda match: match[0].replace(match[1], version),
                text,
                flags=re.MULTILINE,
            )
            if new != text:
                path.write_text(new)
                changed.append(str(path.relative_to(root)))
    return sorted({*changed})


def newest_heading(root: Path) -> str:
    """What the newest section of CHANGELOG.md is headed by: `Unreleased`, or a version with its day."""
    (heading,) = re.findall(r"^## (.+)$", (root / "CHANGELOG.md").read_text(), re.MULTILINE)[:1]
    return str(heading)


def main(arguments: list[str]) -> int:
    """Check or change the checkout; returns the exit status."""
    if arguments:
        if not re.fullmatch(VERSION, arguments[0]):
            print(f"{arguments[0]!r} is no version: name one such as 0.2.0", file=sys.stderr)
            return 2
        print("\n".join(change(ROOT, arguments[0])))
        print("now: uv lock, head CHANGELOG.md's section by it and the day, make lint test")
        return 0
    wrong = disagreements(ROOT)
    print("\n".join(wrong) or f"{current(ROOT)} everywhere")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
