"""Room for the new: logs, stacks and faults of old attempts go. The story stays; it is bounded by itself."""

from __future__ import annotations

import contextlib
import shutil
from typing import TYPE_CHECKING

from oarlock_api.contract.history import FAULTS, LOGS, STACKS, parse_attempt_folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def prune(folder: Path, *, keep: int, own: str) -> int:
    """Keep what the last `keep` attempts have left below the history's folder, the present one, `own`, among them.

    Which are the last, the times of their files say: jobs of one name after each other count their attempts anew. Returns
    how many attempts were removed. What cannot be removed stays.
    """
    found: dict[tuple[int, str], list[Path]] = {}
    for path in _entries(folder):
        known = parse_attempt_folder(path.stem)
        if known and f"{known[0]}-{known[1]}" != own:
            found.setdefault(known, []).append(path)
    old = sorted(found.values(), key=lambda paths: max(map(_written_at, paths)), reverse=True)[max(keep - 1, 0) :]
    for path in (path for paths in old for path in paths):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                path.unlink()
    return len(old)


def _entries(folder: Path) -> Iterator[Path]:
    for kind in (LOGS, STACKS, FAULTS):
        with contextlib.suppress(FileNotFoundError):
            yield from (folder / kind).iterdir()


def _written_at(path: Path) -> float:
    """Of a folder: when a file was last made in it."""
    with contextlib.suppress(OSError):
        return path.stat().st_mtime
    return 0.0
