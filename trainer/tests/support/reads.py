"""Which files below a folder are read, as the kernel tells it (inotify): by any process, also in native code."""

from __future__ import annotations

import ctypes
import os
import struct
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from pathlib import Path

_ACCESS, _MODIFY, _OPEN = 0x1, 0x2, 0x20
_LOST, _FOLDER = 0x4000, 0x40000000
_EVENT = struct.Struct("iIII")
_LIBC = ctypes.CDLL(None, use_errno=True)


class Reads:
    """From its start on, below the folders that are there by then."""

    def __init__(self, folder: Path) -> None:
        self._kernel = _LIBC.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        assert self._kernel >= 0, os.strerror(ctypes.get_errno())
        self._folders: dict[int, str] = {}
        for path in (folder, *(path for path in folder.rglob("*") if path.is_dir())):
            watch = _LIBC.inotify_add_watch(self._kernel, os.fsencode(path), _ACCESS | _MODIFY | _OPEN)
            assert watch >= 0, os.strerror(ctypes.get_errno())
            self._folders[watch] = "" if path == folder else f"{path.relative_to(folder)}/"
        self._seen: dict[str, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._kernel)

    def names(self) -> set[str]:
        """Of the files so far, relative to the folder. One that is open and was not written to counts: it may be mapped."""
        while content := self._next():
            place = 0
            while place < len(content):
                watch, mask, _, length = _EVENT.unpack_from(content, place)
                place += _EVENT.size + length
                assert not mask & _LOST, "more was opened than the kernel remembers"
                # A folder that is removed is told of too, which is no reading.
                if mask & (_ACCESS | _MODIFY | _OPEN) and not mask & _FOLDER and watch in self._folders:
                    name = self._folders[watch] + os.fsdecode(content[place - length : place].rstrip(b"\0"))
                    self._seen[name] = self._seen.get(name, 0) | mask
        return {name for name, mask in self._seen.items() if mask & _ACCESS or not mask & _MODIFY}

    def _next(self) -> bytes:
        try:
            return os.read(self._kernel, 65536)
        except BlockingIOError:
            return b""
