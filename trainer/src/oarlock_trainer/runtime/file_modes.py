"""Modes of files that others shall read.

safetensors writes through a temporary file, and those are for their owner alone (0600), whatever the umask says: a model
that root made could not be read by a pod, which runs as somebody else.
"""

from __future__ import annotations

import stat
from pathlib import Path

_FILE, _FOLDER = 0o666, 0o777
"""What open(2) and mkdir(2) are asked for by everybody; the umask takes away from it."""


def make_ordinary(folder: Path) -> None:
    """Give `folder` and all below it the rights that ordinary files get here; takes none away."""
    mask = _umask()
    for path in (folder, *folder.rglob("*")):
        mode = stat.S_IMODE(path.stat().st_mode)
        ordinary = mode | (_FOLDER if path.is_dir() else _FILE) & ~mask
        if ordinary != mode:
            path.chmod(ordinary)


def _umask() -> int:
    """The process's umask. os.umask() can only tell it by changing it, for all threads."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("Umask:")).split()[1], 8)
