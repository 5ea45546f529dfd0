"""Walking a tree whose folders may be links: each is followed, but not back into a folder that it lies in."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterator


def walk_links(top: Path) -> Iterator[tuple[Path, list[str], list[str]]]:
    """(folder, names of its folders, names of its files) as of os.walk: folders that are removed from it are not entered.

    Raises OSError where a folder cannot be read.
    """
    for inside, folders, files in os.walk(top, onerror=_raise, followlinks=True):
        folder = Path(inside)
        folders[:] = [name for name in folders if not _leads_back(folder / name, top)]
        yield folder, folders, files


def _leads_back(folder: Path, top: Path) -> bool:
    if not folder.is_symlink():
        return False
    leads_to = folder.resolve()
    return any(leads_to == above.resolve() for above in folder.parents if above.is_relative_to(top))


def _raise(error: OSError) -> NoReturn:
    raise error
