"""Files below a folder that others write into: no link leads out of it, wherever in a path it stands. For Python 3.10.

A path that is looked at before it is opened may be another one by then. So each folder on the way is opened by its name in
the one before it, as a folder and as no link (openat(2) with O_NOFOLLOW), and the file in the last of them. The root itself
is the reader's own: it may be a link.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

MOST_ENTRIES = 1 << 16
"""Of a folder, that are looked at: the faults of 1,000 pods in 60 attempts."""
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | getattr(os, "O_DIRECTORY", 0)
"""With O_PATH a folder needs to be entered alone, as by its path."""
_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


@dataclass(frozen=True, slots=True)
class Beneath:
    """A place below `root`, with as much of pathlib.Path as readers need. Whatever opens it raises OSError."""

    root: Path
    parts: tuple[str, ...] = ()

    def __truediv__(self, names: str) -> Beneath:
        """Further below. Raises ValueError for names that lead anywhere else."""
        more = tuple(names.split("/"))
        if any(name in ("", ".", "..") or "\0" in name for name in more):
            raise ValueError(f"{names!r} leads to no place below {self}")
        return Beneath(self.root, self.parts + more)

    def __str__(self) -> str:
        """Its path."""
        return str(self.root.joinpath(*self.parts))

    @property
    def name(self) -> str:
        """The last part of its path."""
        return self.parts[-1] if self.parts else self.root.name

    def open(self, flags: int) -> int:
        """A descriptor of it, as os.open gives one."""
        if not self.parts:
            return os.open(self.root, flags)
        with self._parent() as folder:
            return os.open(self.parts[-1], flags | _NO_LINK, dir_fd=folder)

    def stat(self) -> os.stat_result:
        """What it is; of a link, the link itself."""
        if not self.parts:
            return self.root.stat()
        with self._parent() as folder:
            return os.stat(self.parts[-1], dir_fd=folder, follow_symlinks=False)

    def is_dir(self) -> bool:
        """Whether it is a folder, and no link to one."""
        return stat.S_ISDIR(self._mode())

    def is_file(self) -> bool:
        """Whether it is a regular file, and no link to one."""
        return stat.S_ISREG(self._mode())

    def iterdir(self) -> Iterator[Beneath]:
        """What is in it, at most MOST_ENTRIES."""
        descriptor = self.open(os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
        try:
            with os.scandir(descriptor) as entries:
                names = [entry.name for entry in islice(entries, MOST_ENTRIES)]
        finally:
            os.close(descriptor)
        return (Beneath(self.root, (*self.parts, name)) for name in names)

    def _mode(self) -> int:
        try:
            return self.stat().st_mode
        except OSError as error:
            if error.errno not in _ABSENT:
                raise
            return 0

    @contextmanager
    def _parent(self) -> Iterator[int]:
        """A descriptor of the folder that it is in."""
        held = os.open(self.root, _FOLDER)
        try:
            for part in self.parts[:-1]:
                inner = os.open(part, _FOLDER | _NO_LINK, dir_fd=held)
                os.close(held)
                held = inner
            yield held
        finally:
            os.close(held)


def beneath(folder: Path | Beneath) -> Beneath:
    """The folder as the root of what is below it, unless it is such a place already."""
    return folder if isinstance(folder, Beneath) else Beneath(folder)
