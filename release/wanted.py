"""What whoever releases has chosen, and how commands are run."""

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


class Run(Protocol):
    """Runs a command in the checkout and returns what it prints; raises CommandFailed."""

    def __call__(self, command: Sequence[str], *, look: bool = False) -> str:
        """With `look`, what it says on its standard error is part of the failure instead of the screen."""
        ...


class CommandFailed(Exception):  # noqa: N818 - what happened, not what is thrown
    """A command of the release ended badly; its last words are the message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The arguments of `make release`. What is empty was not chosen: it is not built, or not published."""

    root: Path
    out: Path
    version: str
    publish: bool = False
    builder: str = ""
    """docker, podman or buildah."""
    image_prefix: str = ""
    """What the images' names begin with: a registry and a path."""
    base: str = ""
    """The images' base, by its digest."""
    snapshot: str = ""
    """The time of Debian's packages."""
    chart_repository: str = ""
    """oci://..., the folder that the chart's package is pushed to."""
    python_index: str = ""
    """Where wheels are uploaded to; uv's own variables have the credentials."""
    python_index_check: str = ""
    """The same index as pip reads it: where uv looks whether a wheel is there already."""

    def image_name(self, part: str) -> str:
        """With its tag."""
        return f"{self.image_prefix}/{part}:{self.version}"


def runner(root: Path) -> Run:
    """A Run for the checkout `root`: shows each command, and what it says on its standard error.

    Only `uv publish` is given the credentials of the index: builds run code of others.
    """
    without_credentials = {name: value for name, value in os.environ.items() if not name.startswith("UV_PUBLISH_")}

    def run(command: Sequence[str], *, look: bool = False) -> str:
        print(f"  $ {' '.join(command)}", flush=True)
        environment = None if "publish" in command[1:2] else without_credentials
        errors = subprocess.PIPE if look else None
        try:
            result = subprocess.run(
                command, cwd=root, env=environment, check=False, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        except FileNotFoundError as error:
            raise CommandFailed(f"{command[0]} is not installed") from error
        if result.returncode != 0:
            raise CommandFailed(
                f"{' '.join(command)}: exit {result.returncode}\n{result.stdout[-2000:]}{result.stderr or ''}"
            )
        return result.stdout

    return run
