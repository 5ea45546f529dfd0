"""The program that built the images, and how an image gets from it into a local cluster."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from oarlock_local.processes import start_logged, stop

REGISTRY = "docker.io/"
"""What a kubelet takes a name for that begins with no host."""


def name_in_pods(builder: str, image: str) -> str:
    """The name that pods find an image under once its archive is loaded."""
    host = image.partition("/")[0]
    if "." in host or ":" in host:
        return image
    return f"localhost/{image}" if builder == "podman" else REGISTRY + image


def inspect(builder: str, image: str) -> dict[str, Any]:
    """The image's configuration, as its registry would have it: keys such as User, Labels, Entrypoint."""
    if builder == "buildah":
        config: dict[str, Any] = json.loads(_run(builder, "inspect", "--type", "image", image))["OCIv1"]["config"]
        return config
    found: dict[str, Any] = json.loads(_run(builder, "image", "inspect", image))[0]["Config"]
    return found


def save(builder: str, image: str, path: Path) -> str:
    """Write an image as an archive; returns the name that pods find it under once it is loaded."""
    name = name_in_pods(builder, image)
    if builder == "buildah":
        _run(builder, "push", "--quiet", "--disable-compression", image, f"docker-archive:{path}:{name}")
    else:
        _run(builder, "save", "--output", str(path), image)
    return name


def is_built(builder: str, image: str) -> bool:
    """Whether the builder has an image of this name."""
    command = ["inspect", "--type", "image"] if builder == "buildah" else ["image", "inspect"]
    return subprocess.run([builder, *command, image], check=False, capture_output=True).returncode == 0


@contextmanager
def running(builder: str, image: str, *arguments: str, mount: Path, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The image's program on this machine's network, with a folder of this machine at its own path; SIGTERM ends it."""
    options = ["--network", "host", "--volume", f"{mount}:{mount}:ro"]
    if builder != "buildah":
        with _until_ended([builder, "run", "--rm", *options, image, *arguments], log) as process:
            yield process
        return
    program = inspect(builder, image)["Entrypoint"]
    container = _run(builder, "from", image).strip()
    try:
        command = [builder, "run", "--isolation", "chroot", *options, container, "--", *program, *arguments]
        with _until_ended(command, log) as process:
            yield process
    finally:
        _run(builder, "rm", container)


@contextmanager
def _until_ended(command: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    process = start_logged(command, log)
    try:
        yield process
    finally:
        stop(process)


def _run(*command: str) -> str:
    result = subprocess.run(command, check=False, capture_output=True, text=True)
    assert result.returncode == 0, f"{' '.join(command)}: {result.stderr[-2000:]}"
    return result.stdout
