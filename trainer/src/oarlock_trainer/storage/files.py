"""What every place for files can do, be it a folder or a prefix of a bucket.

Names are relative to the place, with / between the parts. What is written is there whole or not at all, also after a
crash; a reader never sees half of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pathlib import Path
    from typing import BinaryIO


@dataclass(frozen=True, slots=True, order=True)
class FileEntry:
    """One file: its name, its size in bytes, and `version`, which changes when its content does."""

    name: str
    size: int
    version: str


def is_text(name: str) -> bool:
    """Whether a file's name is UTF-8. On Linux it may be any bytes, of which Python makes what Arrow and JSON don't take."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def as_told(name: str) -> str:
    r"""A name as people are told it, with bytes that are not UTF-8 as \xe9."""
    return name.encode(errors="surrogateescape").decode(errors="backslashreplace")


class Files(Protocol):
    """The files below one place. Safe to use from several threads.

    A file that is not there is a FileNotFoundError. What the place refuses for good (rights, a bucket that does not
    exist) is a ConfigurationError, what it fails to do after all retries a StorageError; both say what to do.
    """

    @property
    def where(self) -> str:
        """The place, for people and as a part of cache keys: an absolute path, or s3://bucket/prefix and its service."""
        ...

    def list(self) -> list[FileEntry]:
        """Everything below the place, sorted by name; nothing where the place does not exist. No hidden files.

        Links of a folder are followed, but not back into one that they lie in. One that leads nowhere is told like a file:
        whoever reads it says so.
        """
        ...

    def find(self, name: str) -> FileEntry | None:
        """One file, None where there is none."""
        ...

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """Bytes from `start`; fewer than `length` only where the file ends."""
        ...

    def open(self, name: str) -> BinaryIO:
        """A file to read and seek in, which fetches only what is asked for. To be closed."""
        ...

    def write(self, name: str, content: bytes) -> None:
        """Create or replace a file in one piece."""
        ...

    def upload(self, name: str, file: Path) -> None:
        """Create or replace a file by a finished one of this machine, which stays as it is."""
        ...

    def remove(self, name: str) -> None:
        """Remove a file; fine where there is none."""
        ...
