"""Files in a folder that every node mounts."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import stat
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from oarlock_trainer.runtime.atomic_write import TEMPORARY, replacing
from oarlock_trainer.runtime.errors import readable, storage
from oarlock_trainer.storage.files import FileEntry

if TYPE_CHECKING:
    from collections.abc import Mapping

_LEADS_NOWHERE = frozenset({errno.ENOENT, errno.ELOOP})


class LocalFiles:
    """The files below a folder. `field` is the job's field that names it, for messages.

    `owner`, the UID of a job, is part of what a kill leaves of its writes. `paths` say where an absolute name of a pod, as
    tables may have, lies on this machine.
    """

    def __init__(self, folder: Path, *, field: str, owner: str = "", paths: Mapping[str, str] | None = None) -> None:
        self._folder = folder
        self._field = field
        self._paths = paths or {}
        self._mark = f"{hashlib.sha256(owner.encode()).hexdigest()[:16]}-" if owner else ""

    @property
    def where(self) -> str:
        """The folder."""
        return str(self._folder)

    def list(self) -> list[FileEntry]:
        """Raises ConfigurationError where a folder below may not be read: its files would be left out in silence."""
        found: list[FileEntry] = []
        with readable(self._field, self._folder):
            _walk(str(self._folder), "", found, above=())
        return sorted(found)

    def find(self, name: str) -> FileEntry | None:
        """One file, None where there is none."""
        with readable(self._field, self._folder):
            try:
                facts = self._at(name).stat()
            except OSError as error:
                if error.errno not in {*_LEADS_NOWHERE, errno.ENOTDIR}:
                    raise
                return None
        return None if stat.S_ISDIR(facts.st_mode) else _entry(name, facts)

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """Bytes from `start`."""
        with self.open(name) as file:
            file.seek(start)
            return file.read(-1 if length is None else length)

    def open(self, name: str) -> BinaryIO:
        """The file itself."""
        with readable(self._field, self._folder):
            return self._at(name).open("rb")

    def write(self, name: str, content: bytes) -> None:
        """Create or replace a file in one piece."""
        path = self._folder / name
        with storage(f"writing {path}"):
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path, mark=self._mark) as temporary:
                temporary.write_bytes(content)

    def upload(self, name: str, file: Path) -> None:
        """Copy a file of this machine."""
        path = self._folder / name
        with storage(f"writing {path}"):
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path, mark=self._mark) as temporary:
                shutil.copyfile(file, temporary)

    def remove(self, name: str) -> None:
        """Remove a file; fine where there is none."""
        with storage(f"removing {name} from {self._folder}"):
            (self._folder / name).unlink(missing_ok=True)

    def _at(self, name: str) -> Path:
        return self._folder / (here(name, self._paths) if name.startswith("/") else name)

    def remove_unfinished(self) -> None:
        """Remove what a kill left of the owner's writes, in the folder itself. Not to be called while it writes."""
        if not self._mark or not self._folder.is_dir():
            return
        with storage(f"removing unfinished files from {self._folder}"):
            for path in self._folder.glob(f"{TEMPORARY}*-{self._mark}*"):
                path.unlink(missing_ok=True)


def here(path: str, paths: Mapping[str, str]) -> str:
    """Where a path of a pod lies on this machine: by the longest of `paths` that it begins with, or under its own name."""
    for prefix, place in sorted(paths.items(), key=lambda pair: -len(pair[0])):
        if path == prefix or path.startswith(prefix.rstrip("/") + "/"):
            return str(Path(place).absolute()) + path.removeprefix(prefix.rstrip("/"))
    return path


def _walk(folder: str, prefix: str, found: list[FileEntry], *, above: tuple[tuple[int, int], ...]) -> None:
    """A link is followed, but not back into a folder that it lies in (`above`: their devices and inodes)."""
    # scandir tells kinds without a stat, and os.walk would throw the entries away before they are asked for theirs.
    try:
        facts, entries = Path(folder).stat(), list(os.scandir(folder))
    except FileNotFoundError:
        return
    own = facts.st_dev, facts.st_ino
    if own in above:
        return
    for entry in entries:
        if entry.name.startswith("."):
            continue
        try:
            if entry.is_dir():
                _walk(entry.path, f"{prefix}{entry.name}/", found, above=(*above, own))
            else:
                found.append(_entry(prefix + entry.name, entry.stat()))
        except OSError as error:
            if error.errno == errno.ENOENT and not entry.is_symlink():
                continue  # it went away while we looked
            if error.errno not in _LEADS_NOWHERE:
                raise
            found.append(FileEntry(prefix + entry.name, 0, "a link that leads nowhere"))


def _entry(name: str, facts: os.stat_result) -> FileEntry:
    return FileEntry(name, facts.st_size, f"{facts.st_size}-{facts.st_mtime_ns}")
