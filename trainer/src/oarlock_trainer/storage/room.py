"""The bytes that a cache on disk may take, shared by the processes of a node without a word between them.

Each process may write its part of a fifth of the capacity, and then looks at what lies there and removes the least
recently used, down to four fifths. So all together never have more than the capacity, whoever of them crashes when.
"""

from __future__ import annotations

import contextlib
import os
import threading
from typing import TYPE_CHECKING, NamedTuple

from oarlock_trainer.durable import TEMPORARY

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_ABANDONED_SECONDS = 3600.0
"""No write takes so long: what is still temporary then, a crash left."""


class Room:
    """At most `capacity` bytes in the folders below `folder`, written by `processes` processes with this class."""

    def __init__(self, folder: Path, *, capacity: int, processes: int) -> None:
        self._folder = folder
        self._kept = capacity * 4 // 5
        self._share = (capacity - self._kept) // processes
        self._lock = threading.Lock()
        self._written = self._share  # nobody has looked yet
        self._looking = False

    def claim(self, size: int, *, now: float) -> bool:
        """Tell whether `size` bytes may be written, after making room for them where that is needed.

        `now` is the time of day in seconds. False is no failure: too large, or another thread is making room just now.
        """
        with self._lock:
            if size > self._share or self._looking:
                return False
            self._written += size
            if self._written <= self._share:
                return True
            self._written = size
            self._looking = True
        try:
            self._make_room(now)
        finally:
            with self._lock:
                self._looking = False
        return True

    def _make_room(self, now: float) -> None:
        found = sorted(_contents(self._folder))
        total = sum(piece.size for piece in found)
        for piece in found:
            temporary = os.path.basename(piece.path).startswith(TEMPORARY)  # noqa: PTH119 - a million of them
            if piece.used < now - _ABANDONED_SECONDS if temporary else total > self._kept:
                # Gone: another process makes room too, and has removed it.
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(piece.path)  # noqa: PTH108
                total -= piece.size


class _Piece(NamedTuple):
    used: float
    size: int
    path: str


def _contents(folder: Path) -> Iterator[_Piece]:
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as parts:
        for part in parts:
            with os.scandir(part.path) as pieces:
                for piece in pieces:
                    with contextlib.suppress(FileNotFoundError):
                        facts = piece.stat()
                        yield _Piece(facts.st_mtime, facts.st_size, piece.path)
