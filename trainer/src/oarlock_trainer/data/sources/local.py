"""Pictures in a folder that every node mounts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from oarlock_trainer.errors import ConfigurationError, readable

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

EXTENSIONS = frozenset({".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff"})


class LocalSource:
    """Pictures below a folder; a picture's name is its path below it, with / between the parts."""

    def __init__(self, folder: Path) -> None:
        """Raises ConfigurationError where the folder is none, or may not be read."""
        with readable("source.path", folder):
            there = folder.is_dir()
        if not there:
            raise ConfigurationError(
                f"the source {folder} is no folder in the pod: mount it with pod.volumes, or correct source.path"
            )
        self._folder = folder

    def pictures(self) -> list[str]:
        """Names of all pictures, sorted, so that every rank sees the same list.

        Raises ConfigurationError where a folder may not be read: its pictures would be left out in silence.
        """
        found = []
        with self.readable():
            for folder, subfolders, names in os.walk(self._folder, onerror=_raise_unless_gone):
                subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
                found += [
                    Path(folder, name).relative_to(self._folder).as_posix()
                    for name in names
                    if Path(name).suffix.lower() in EXTENSIONS and not name.startswith(".")
                ]
        return sorted(found)

    def readable(self) -> AbstractContextManager[None]:
        """What may not be read within this context is the job's fault, and told with its owner and mode."""
        return readable("source.path", self._folder)

    def path(self, name: str) -> Path:
        """Where a picture lies."""
        return self._folder / name

    def version(self, name: str) -> str:
        """What changes when a picture's content does: its size in bytes and its time of modification."""
        facts = self.path(name).stat()
        return f"{facts.st_size}-{facts.st_mtime_ns}"

    def text(self, name: str) -> str | None:
        """Content of the caption file beside a picture (photo.txt for photo.png), or None where there is none."""
        try:
            return self.path(name).with_suffix(".txt").read_text(encoding="utf-8")
        except FileNotFoundError:
            return None


def _raise_unless_gone(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error
