"""Writing files so that a crash at any byte leaves either the old state or the new one.

The order is always: write a temporary name, fsync it, rename it, fsync the folder. A reader never looks at temporary
names, so what a crash leaves behind blocks nobody.
"""

from __future__ import annotations

import json
import os
import secrets
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TEMPORARY = ".tmp-"
"""Prefix of everything that is not valid yet."""


def sync_file(path: Path) -> None:
    """Wait until a file's bytes are on the storage."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(path: Path) -> None:
    """Wait until a folder's names are on the storage."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(path: Path) -> None:
    """Wait until every file and folder below `path`, and `path` itself, is on the storage."""
    for folder, _, names in os.walk(path):
        for name in names:
            sync_file(path.__class__(folder, name))
        sync_folder(path.__class__(folder))


@contextmanager
def replacing(path: Path, *, mark: str = "") -> Iterator[Path]:
    """A temporary name beside `path`, whose file takes its place at the end; after an error nothing stays of it.

    Two writers of one file never mix: each has its own temporary name. It holds `mark`, by which it is known after a kill.
    """
    temporary = path.parent / f"{TEMPORARY}{path.name}-{mark}{secrets.token_hex(8)}"
    try:
        yield temporary
        sync_file(temporary)
        temporary.rename(path)
    except BaseException:
        # A full disk stays full where each attempt leaves what it could not end. The error is worth more than this one's.
        with suppress(OSError):
            temporary.unlink()
        raise
    sync_folder(path.parent)


def write_bytes(path: Path, content: bytes | memoryview) -> None:
    """Create or replace a file in one piece."""
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def write_json(path: Path, value: Any) -> None:
    """Create or replace a JSON file in one piece."""
    write_bytes(path, (json.dumps(value, sort_keys=True, indent=1) + "\n").encode())
