"""What a registry holds of this version already: a release that stopped half-way is published by the same command again.

An image is built once: one that was pushed from this commit is taken as it is, because another build of the same sources has
another digest. A chart is pushed again where it is not there. What is there from other sources is refused: it was published.
"""

import json
import tarfile
from pathlib import Path

from release.images import REVISION, Image
from release.wanted import CommandFailed, Run, Wanted

_ABSENT = ("not found", "404", "manifest unknown", "name unknown")
"""What the programs say of a name that a registry does not have. All else that goes wrong ends the release."""


def pushed(wanted: Wanted, part: str, run: Run) -> Image | None:
    """The image of this version in the registry, None where there is none.

    Raises CommandFailed where it was made from another commit, or the registry does not answer.
    """
    name = wanted.image_name(part)
    if wanted.builder == "docker":
        asked = ["docker", "buildx", "imagetools", "inspect", "--format", "{{json .}}", name]
    else:
        asked = ["skopeo", "inspect", f"docker://{name}"]
    told = _look(asked, run)
    if told is None:
        return None
    found = json.loads(told)
    docker = wanted.builder == "docker"
    labels = found["image"]["config"]["Labels"] if docker else found["Labels"]
    digest = found["manifest"]["digest"] if docker else found["Digest"]
    commit = run(["git", "rev-parse", "HEAD"]).strip()
    if (labels or {}).get(REVISION) != commit:
        raise CommandFailed(
            f"{name} is in the registry already, and not from the commit {commit}: release another version"
        )
    return Image(part, name, pushed=digest)


def holds(wanted: Wanted, chart: Path, helm_program: Path, run: Run) -> bool:
    """Whether the chart is there. Raises CommandFailed where another one of this version is, or no answer comes."""
    place = f"{wanted.chart_repository}/oarlock"
    there = wanted.out / "there"
    there.mkdir()
    told = _look([str(helm_program), "pull", place, "--version", wanted.version, "--destination", str(there)], run)
    files = [_contents(path) for path in there.iterdir()]
    for path in there.iterdir():
        path.unlink()
    there.rmdir()
    if told is not None and files != [_contents(chart)]:
        raise CommandFailed(f"{place} has another chart {wanted.version} already: release another version")
    return told is not None


def _look(command: list[str], run: Run) -> str | None:
    try:
        return run(command, look=True)
    except CommandFailed as error:
        if any(words in str(error).lower() for words in _ABSENT):
            return None
        raise


def _contents(package: Path) -> dict[str, bytes]:
    """Its files, without their times: those are the checkout's."""
    with tarfile.open(package) as archive:
        return {file.name: taken.read() for file in archive if (taken := archive.extractfile(file))}
