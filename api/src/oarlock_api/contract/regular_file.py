"""Reading files below an output, where the job's own program may have put anything: bounded, and regular files alone.

Of a Path the last part is no link; of a Beneath, none of those below its root.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from oarlock_api.contract.beneath import Beneath

_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
"""A link may lead out of the output, and whoever opens a FIFO waits for its writer."""


def read_regular(path: Path | Beneath, *, most: int, from_end: bool = False) -> bytes:
    """At most so many of its bytes, the first or the last ones. Raises OSError, also for links, FIFOs and devices."""
    with open_regular(path) as (file, size):
        if from_end:
            file.seek(max(0, size - most))
        return file.read(most)


@contextmanager
def open_regular(path: Path | Beneath) -> Iterator[tuple[BinaryIO, int]]:
    """The file, for reading, and its size in bytes. Raises OSError as read_regular does."""

    def opened(name: str, flags: int) -> int:
        return path.open(flags | _FLAGS) if isinstance(path, Beneath) else os.open(name, flags | _FLAGS)

    with open(str(path), "rb", opener=opened) as file:
        about = os.fstat(file.fileno())
        if not stat.S_ISREG(about.st_mode):
            raise OSError(errno.EINVAL, "no regular file", str(path))
        yield file, about.st_size


def read_spread(path: Path | Beneath, *, most: int, pieces: int) -> bytes:
    """All of a file of lines, or, where it is longer than `most`, so many pieces of it from its beginning to its end.

    Between two pieces stands a newline: whoever reads lines finds torn ones there. Raises as read_regular.
    """
    with open_regular(path) as (file, size):
        if size <= most:
            return file.read(most)
        each, found = most // pieces, []
        for piece in range(pieces):
            file.seek((size - each) * piece // (pieces - 1))
            found.append(file.read(each))
        return b"\n".join(found)
