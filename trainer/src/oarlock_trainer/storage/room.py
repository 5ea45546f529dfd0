"""The bytes that a cache on disk may take, shared by the processes of a node without a word between them.

Each process may write its part of a fifth of the capacity. When half of that is written it looks at what lies there and
removes the least recently used, down to four fifths. So all together never have more than the capacity, whoever of them
crashes when. To look at a million pieces takes seconds: a thread does it, and only the first time is waited for.
"""

from __future__ import annotations

import contextlib
import os
import threading
from typing import TYPE_CHECKING, NamedTuple

from oarlock_trainer.runtime.atomic_write import TEMPORARY

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MAKING_ROOM = "making-room"
"""Name of the thread."""
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
        self._reserved = 0
        self._looking = False

    @contextlib.contextmanager
    def reserve(self, size: int, *, now: float) -> Iterator[bool]:
        """Whether `size` bytes may be written, within the context.

        `now` is the time of day in seconds. False is no failure: too large, or room is being made just now.
        """
        if (before := self._due(self._share)) is not None:
            self._look(now, before)
        with self._lock:
            fits = self._written + self._reserved + size <= self._share
            self._reserved += size * fits
        try:
            yield fits
        finally:
            with self._lock:
                self._reserved -= size * fits
                self._written += size * fits
            if (before := self._due(self._share // 2)) is not None:
                threading.Thread(target=self._look, args=(now, before), name=MAKING_ROOM, daemon=True).start()

    def _due(self, written: int) -> int | None:
        """What was written, where that is as much and nobody looks: the caller then has to."""
        with self._lock:
            if self._looking or self._written < written:
                return None
            self._looking = True
            return self._written

    def _look(self, now: float, before: int) -> None:
        """Make room. What was written `before` is counted here, and what is written meanwhile by the next look."""
        # A disk that fails is told by the writes to it.
        with contextlib.suppress(OSError):
            self._make_room(now)
        with self._lock:
            self._written -= before
            self._looking = False

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
