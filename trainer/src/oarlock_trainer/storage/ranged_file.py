"""A file to read and seek in, over a place that hands out ranges."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import BinaryIO

_READ_AHEAD = 64 << 10
"""Enough for the head of a picture in one request; a reader that wants more says so, and gets it in one request too."""


def ranged_file(size: int, read: Callable[[int, int], bytes]) -> BinaryIO:
    """A file of `size` bytes. `read(start, length)` fetches; it is called for what is read and little more."""
    return io.BufferedReader(_Ranges(size, read), _READ_AHEAD)


class _Ranges(io.RawIOBase):
    def __init__(self, size: int, read: Callable[[int, int], bytes]) -> None:
        self._size = size
        self._read = read
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        if base + offset < 0:
            raise ValueError(f"cannot seek to {base + offset}: before the start of the file")
        self._at = base + offset
        return self._at

    def readinto(self, target: memoryview) -> int:  # type: ignore[override]  # BufferedReader gives memoryviews
        length = min(len(target), self._size - self._at)
        if length <= 0:
            return 0
        target[:length] = self._read(self._at, length)
        self._at += length
        return length
