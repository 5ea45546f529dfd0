"""The two images: built from what never changes, named by their digests.

The digest by which a registry knows an image is there once it was pushed; before that the builder has a digest of its
configuration, which says as well what was built.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from release.wanted import Run, Wanted

PARTS = ("operator", "trainer")
REVISION = "org.opencontainers.image.revision"
"""The label that names the commit."""
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Image:
    """A built image."""

    part: str
    name: str
    """With its tag."""
    configuration: str = ""
    """The digest of what was built; empty where an image of this commit was in the registry already."""
    pushed: str = ""
    """The digest in the registry, once it is there."""

    @property
    def reference(self) -> str:
        """How to name it: by its digest as soon as there is one."""
        return f"{self.name.rpartition(':')[0]}@{self.pushed}" if self.pushed else self.name


def why_none(wanted: Wanted) -> str:
    """What images cannot be built for want of; empty where they can."""
    if not wanted.builder:
        return "no builder of images works here: docker (with its daemon), podman or buildah"
    if not wanted.base or not wanted.snapshot:
        return (
            "a release is built from what never changes: name BASE=IMAGE@sha256:... and SNAPSHOT=... (docs/images.md)"
        )
    return ""


def build(wanted: Wanted, parts: Sequence[str], run: Run) -> list[Image]:
    """Build these parts by `make release-images`."""
    run(
        [
            *("make", "--no-print-directory", "release-images", f"BUILDER={wanted.builder}"),
            *(f"IMAGE_PREFIX={wanted.image_prefix}", f"BASE={wanted.base}", f"SNAPSHOT={wanted.snapshot}"),
            f"IMAGES={' '.join(parts)}",
        ]
    )
    names = {part: wanted.image_name(part) for part in parts}
    return [Image(part, name, _configuration(wanted.builder, name, run)) for part, name in names.items()]


def push(wanted: Wanted, image: Image, run: Run) -> Image:
    """Push an image; returns it with its digest in the registry."""
    if wanted.builder == "docker":
        # Its push prints the digest on its last line.
        digest = _DIGEST.findall(run(["docker", "push", image.name]))[-1]
    else:
        file = wanted.out / f"{image.part}.digest"
        run([wanted.builder, "push", "--digestfile", str(file), image.name])
        digest = file.read_text().strip()
        file.unlink()
    return Image(image.part, image.name, image.configuration, digest)


def write_list(images: list[Image], path: Path) -> Path:
    """A line for each image: its name, the digest of its configuration, the registry's where it was pushed."""
    lines = [
        f"{image.name} {image.configuration or 'there-before'} {image.pushed or 'not-pushed'}\n" for image in images
    ]
    path.write_text("".join(lines))
    return path


def _configuration(builder: str, name: str, run: Run) -> str:
    inspect = ["buildah", "inspect", "--type", "image", "--format", "{{.FromImageID}}"]
    told = run([*(inspect if builder == "buildah" else [builder, "image", "inspect", "--format", "{{.Id}}"]), name])
    digest = told.strip()
    return digest if digest.startswith("sha256:") else f"sha256:{digest}"
