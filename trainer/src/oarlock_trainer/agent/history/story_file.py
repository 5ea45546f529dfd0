"""The story's lines on the output. What a crash cut off is ended first, so that the next line can be read."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from oarlock_api.contract.history import MAX_STORY, OLDER_STORY, STORY
from oarlock_trainer.agent.history.log_file import append

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


class StoryFile:
    """A file of lines. Every call may wait for the storage, and raise OSError."""

    def __init__(self, path: Path, *, most: int = MAX_STORY) -> None:
        self._path, self._most = path, most

    def append(self, lines: Sequence[str]) -> None:
        """Append lines in one write: all of them, or none."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        size = self._path.stat().st_size if self._path.exists() else 0
        if size > self._most and self._path.name == STORY:
            self._path.replace(self._path.with_name(OLDER_STORY))
            size = 0
        if size and _is_torn(self._path):
            append(self._path, b"\n")
        append(self._path, "".join(f"{line}\n" for line in lines).encode())


def _is_torn(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"
