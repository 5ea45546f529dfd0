"""Files of a store (a bucket, a folder) as a folder of this node: whole or not there, and only once.

They are fetched in pieces, many at once, under a temporary name. A journal says which pieces are there, so that a process
that goes on from a kill fetches only the rest; the node's crash makes it worthless, and it begins anew. At the end the
store is listed again: what was replaced meanwhile is no whole.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import threading
import time
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from oarlock_trainer.runtime.atomic_write import TEMPORARY, sync_folder, sync_tree
from oarlock_trainer.runtime.errors import StorageError, storage
from oarlock_trainer.runtime.heartbeat import Heartbeat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from oarlock_trainer.storage.files import FileEntry, Files

PIECE = 16 << 20
"""Bytes. Each piece in flight is in memory."""
_AT_ONCE = 8
_LOOK_SECONDS = 0.5
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_JOURNAL = ".fetched"


class _Range(NamedTuple):
    name: str
    start: int
    length: int


def fetch(
    files: Files,
    entries: Sequence[FileEntry],
    folder: Path,
    *,
    go_on: Callable[[], None],
    tell: Callable[[int, int], None],
) -> None:
    """Make `folder` hold those entries of `files`; at once where it is there.

    `go_on` is called while waiting, and may raise to stop; `tell(bytes, of bytes)` while fetching. Raises StorageError, also
    for a disk without room, and ConfigurationError.
    """
    if folder.is_dir():
        return
    with storage(f"fetching {files.where}"):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _alone(folder.with_name(f".lock-{folder.name}"), go_on):
            if folder.is_dir():
                return
            parts = folder.with_name(f"{TEMPORARY}{folder.name}")
            with closing(_Journal(parts)) as journal:
                _fetch(files, entries, parts, journal=journal, go_on=go_on, tell=tell)
            (parts / _JOURNAL).unlink()
            sync_tree(parts)
            parts.rename(folder)
            sync_folder(folder.parent)


def check_room(folder: Path, needed: int) -> None:
    """Raise StorageError where the disk of a folder has not `needed` bytes."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise StorageError(
            f"the model does not fit into {folder} of this node: {needed / 1e9:.1f} GB are to be fetched and "
            f"{free / 1e9:.1f} GB are free: mount a larger volume there with pod.volumes"
        )


def _fetch(
    files: Files,
    entries: Sequence[FileEntry],
    parts: Path,
    *,
    journal: _Journal,
    go_on: Callable[[], None],
    tell: Callable[[int, int], None],
) -> None:
    pieces = [piece for entry in entries for piece in _pieces(entry)]
    missing = [piece for piece in pieces if piece not in journal.there]
    total = sum(entry.size for entry in entries)
    done = total - sum(piece.length for piece in missing)
    check_room(parts, total - done)
    for entry in entries:
        (parts / entry.name).parent.mkdir(parents=True, exist_ok=True)
        (parts / entry.name).touch()

    def bring(piece: _Range) -> _Range:
        content = files.read(piece.name, piece.start, piece.length)
        if len(content) != piece.length:
            raise StorageError(f"{piece.name} in {files.where} ends before byte {piece.start + piece.length}")
        descriptor = os.open(parts / piece.name, os.O_WRONLY)
        try:
            if os.pwrite(descriptor, content, piece.start) != piece.length:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(parts / piece.name))
        finally:
            os.close(descriptor)
        journal.note(piece)
        return piece

    pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="fetch")
    try:
        under_way: set[Future[_Range]] = {pool.submit(bring, piece) for piece in missing}
        while under_way:
            go_on()
            ended, under_way = wait(under_way, timeout=_LOOK_SECONDS, return_when=FIRST_COMPLETED)
            done += sum(one.result().length for one in ended)
            tell(done, total)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    now = {entry.name: entry for entry in files.list()}
    if changed := [entry.name for entry in entries if now.get(entry.name) != entry]:
        shutil.rmtree(parts)
        raise StorageError(f"{', '.join(changed[:3])} in {files.where} changed while it was fetched: it begins anew")


def _pieces(entry: FileEntry) -> Iterator[_Range]:
    for start in range(0, entry.size, PIECE):
        yield _Range(entry.name, start, min(PIECE, entry.size - start))


class _Journal:
    """Which pieces lie below a folder. Without one of this boot, nothing does."""

    def __init__(self, folder: Path) -> None:
        boot = _BOOT.read_text(encoding="ascii")
        path = folder / _JOURNAL
        said = path.read_text(encoding="utf-8") if path.is_file() else ""
        self._lock = threading.Lock()
        self.there: frozenset[_Range] = frozenset()
        if said.startswith(boot):
            whole = said[len(boot) :].rpartition("\n")[0].splitlines()  # the last line may be half written
            self.there = frozenset(_Range(name, int(start), int(length)) for start, length, name in map(_split, whole))
            # What comes after half a line would be taken for its end.
            self._file = path.open("r+", encoding="utf-8")
            self._file.truncate(len(said[: said.rindex("\n") + 1].encode()))
            self._file.seek(0, os.SEEK_END)
            return
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        self._file = path.open("w", encoding="utf-8")
        self._file.write(boot)

    def note(self, piece: _Range) -> None:
        with self._lock:
            self._file.write(f"{piece.start} {piece.length} {piece.name}\n")
            self._file.flush()

    def close(self) -> None:
        self._file.close()


def _split(line: str) -> list[str]:
    return line.split(" ", 2)


@contextmanager
def _alone(lock: Path, go_on: Callable[[], None]) -> Iterator[None]:
    """While no other process of this node, of whichever job, is within."""
    beat = Heartbeat()
    with lock.open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                go_on()
                beat()
                time.sleep(_LOOK_SECONDS)
        yield
