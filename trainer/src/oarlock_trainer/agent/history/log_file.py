"""A pod's log on the output: gzip members that are appended, in two files of which the older goes when both are full.

An append is whole or is taken back; what a crash or a full disk leaves of one all the same, readers pass over.
"""

from __future__ import annotations

import contextlib
import errno
import os
from typing import TYPE_CHECKING

from oarlock_api.contract.gzip_members import member
from oarlock_api.contract.history import log_name
from oarlock_api.contract.log_lines import LogStream, stamped

if TYPE_CHECKING:
    from pathlib import Path

_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC

_NO_SYNC = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP)
"""What storage answers that does not know fsync."""


class LogFile:
    """The log of one pod of one attempt, of at most `most` bytes. Every call may wait for the storage, and raise OSError."""

    def __init__(self, folder: Path, rank: int, *, most: int) -> None:
        self._path, self._older = folder / log_name(rank), folder / log_name(rank, older=True)
        self._most = most

    def append(self, lines: bytes, *, time: str) -> None:
        """Append whole lines."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        packed = member(lines)
        if self._size() + len(packed) > self._most // 2 and self._make_room():
            said = (
                f"older lines were removed: a pod's log has at most {self._most} bytes (spec.output.history.logSize)\n"
            )
            packed = member(stamped(said.encode(), stream=LogStream.NOTE, time=time) + lines)
        append(self._path, packed)

    def _size(self) -> int:
        try:
            return self._path.stat().st_size
        except FileNotFoundError:
            return 0

    def _make_room(self) -> bool:
        """Begin a new file; whether lines were lost by that."""
        lost = self._older.exists()
        with contextlib.suppress(FileNotFoundError):  # nothing is written yet, and one append is larger than the bound
            self._path.replace(self._older)
        return lost


def append(path: Path, content: bytes) -> None:
    """Append in one write. Raises OSError, and then takes back what was written of it, as far as it can."""
    descriptor = os.open(path, _FLAGS, 0o666)
    try:
        before = os.fstat(descriptor).st_size
        try:
            _write_whole(descriptor, content)
            _sync(descriptor)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, before)
            raise
    finally:
        os.close(descriptor)


def _sync(descriptor: int) -> None:
    """Some storage, such as NFS, says only now that it is full."""
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise


def _write_whole(descriptor: int, content: bytes) -> None:
    if os.write(descriptor, content) < len(content):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
