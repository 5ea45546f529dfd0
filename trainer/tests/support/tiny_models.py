"""Tiny models, each made once for all workers of a run of tests."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def made_tiny(slug: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model of a family, written by the command for it: this process stays without torch. Nobody changes it.

    The workers of one run share it: whoever comes first makes it. What the command said lies beside it.
    """
    own = tmp_path_factory.getbasetemp()
    shared = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    directory = shared / f"tiny-{slug}"
    with (shared / f"tiny-{slug}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not directory.exists():
            command = [sys.executable, "-m", "oarlock_trainer", f"make-tiny-{slug}", str(directory)]
            environment = {key: value for key, value in os.environ.items() if key != "DS_ACCELERATOR"}
            made = subprocess.run(command, check=True, capture_output=True, text=True, env=environment, umask=0o022)
            (shared / f"tiny-{slug}.said").write_text(made.stdout + made.stderr)
    return directory
