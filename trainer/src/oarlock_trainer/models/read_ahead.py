"""Weight files are read into the node's page cache ahead of the ranks that map them.

A rank takes weights from mapped files: a page that is not in memory is asked for when it is touched, 128 KiB at a time (the
kernel's read_ahead_kb), one piece after the other. Over a network each costs a round trip, and all ranks of a node wait for
the same ones. So one of them reads the files in large pieces, several at a time, and throws away what it read. It is a help
and nothing more: what can't be read, or would take memory that others need, the ranks meet as they do without it.
"""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_READERS = 8
"""Pieces that are under way at a time."""
_PIECE = 8 << 20
"""Bytes."""
_SHARE = 0.5
"""Of the memory that is free."""
_MEMORY = Path("/proc/meminfo")
_CONTAINER = Path("/sys/fs/cgroup")


@contextmanager
def read_ahead(files: Sequence[Path], *, room: int) -> Iterator[list[Thread]]:
    """Read the files, in their order, while the block runs; `room` bytes at most. Gives threads that nobody waits for."""
    over = Event()
    threads = [Thread(target=_read, args=(files, own, room // _READERS, over), daemon=True) for own in range(_READERS)]
    for thread in threads:
        thread.start()
    try:
        yield threads
    finally:
        over.set()


def room(memory: Path = _MEMORY, container: Path = _CONTAINER) -> int:
    """Bytes that may be read ahead: half of what is free on the node and within the container's limit; 0 if nobody says."""
    try:
        lines = dict(line.split(":", 1) for line in memory.read_text().splitlines())
        free = int(lines["MemAvailable"].split()[0]) << 10
    except (OSError, ValueError, KeyError):
        return 0
    with suppress(OSError, ValueError):  # without a limit it says max
        free = min(free, int((container / "memory.max").read_text()) - int((container / "memory.current").read_text()))
    return int(max(free, 0) * _SHARE)


def _read(files: Sequence[Path], own: int, most: int, over: Event) -> None:
    """Read every _READERS-th piece of each file, from this reader's own on; `most` bytes of all."""
    buffer, left = memoryview(bytearray(_PIECE)), most
    with suppress(OSError):
        for path in files:
            with path.open("rb", buffering=0) as file:
                file.seek(own * _PIECE)
                while left > 0 and not over.is_set() and (got := file.readinto(buffer[:left])):
                    left -= got
                    file.seek((_READERS - 1) * _PIECE, os.SEEK_CUR)
