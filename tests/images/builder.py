"""The program that built the images, and how an image gets from it into a local cluster."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

REGISTRY = "docker.io/"
"""What a kubelet takes a name for that begins with no host."""


def inspect(builder: str, image: str) -> dict[str, Any]:
    """The image's configuration, as its registry would have it: keys such as User, Labels, Entrypoint."""
    if builder == "buildah":
        config: dict[str, Any] = json.loads(_run(builder, "inspect", "--type", "image", image))["OCIv1"]["config"]
        return config
    found: dict[str, Any] = json.loads(_run(builder, "image", "inspect", image))[0]["Config"]
    return found


def save(builder: str, image: str, path: Path) -> str:
    """Write an image as an archive; returns the name that pods find it under once it is loaded."""
    if builder == "buildah":
        _run(builder, "push", "--quiet", "--disable-compression", image, f"docker-archive:{path}:{REGISTRY}{image}")
        return REGISTRY + image
    _run(builder, "save", "--output", str(path), image)
    return f"localhost/{image}" if builder == "podman" else REGISTRY + image


def _run(*command: str) -> str:
    result = subprocess.run(command, check=False, capture_output=True, text=True)
    assert result.returncode == 0, f"{' '.join(command)}: {result.stderr[-2000:]}"
    return result.stdout
