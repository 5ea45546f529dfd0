"""The rank host over a storage that can be paused: while the file of OARLOCK_PAUSE exists, no file of a storage is opened.

    python paused_host.py --control FD --parent PID

As rank_host otherwise. Each open that had to wait adds a line to the file's namesake that ends in .waited.
"""

from __future__ import annotations

import os
import runpy
import time
from pathlib import Path
from typing import BinaryIO

from oarlock_trainer.storage.local import LocalFiles

_PAUSE = Path(os.environ["OARLOCK_PAUSE"])
_OPEN = LocalFiles.open


def _open(files: LocalFiles, name: str) -> BinaryIO:
    if _PAUSE.exists():
        while _PAUSE.exists():
            time.sleep(0.05)
        with _PAUSE.with_suffix(".waited").open("a") as waited:
            waited.write(f"{name}\n")
    return _OPEN(files, name)


if __name__ == "__main__":
    LocalFiles.open = _open  # type: ignore[method-assign]
    runpy.run_module("oarlock_trainer.ranks.rank_host", run_name="__main__", alter_sys=True)
