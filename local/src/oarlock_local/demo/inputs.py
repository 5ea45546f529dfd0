"""The demo's model and pictures: made by the trainer's own tools, once, and kept in the cache."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from oarlock_local.errors import LocalError
from oarlock_local.folders import cache_folder

STEPS = (
    ("make-tiny-flux", "models/flux-tiny"),
    ("make-photographs", "data/photos"),
)


def make_inputs() -> Path:
    """A folder with models/flux-tiny and data/photos, made anew when the trainer's source changes."""
    trainer = Path(sys.prefix) / "bin/oarlock-trainer"
    folder = cache_folder(os.environ) / "demo" / _key()
    if folder.is_dir():
        return folder
    unfinished = folder.with_name(f"{folder.name}.{os.getpid()}")
    shutil.rmtree(unfinished, ignore_errors=True)
    for command, target in STEPS:
        result = subprocess.run(
            [trainer, command, unfinished / target],
            check=False,
            capture_output=True,
            text=True,
            umask=0o022,  # pods run as another user, who must be able to read them
        )
        if result.returncode != 0:
            raise LocalError(f"oarlock-trainer {command} failed:\n{result.stderr[-2000:]}")
    with contextlib.suppress(OSError):  # somebody else was faster, with the same
        unfinished.rename(folder)
    shutil.rmtree(unfinished, ignore_errors=True)
    return folder


def _key() -> str:
    """Changes with the trainer's source."""
    root = Path(__file__).parents[4]
    digest = hashlib.sha256()
    for path in sorted((root / "trainer/src").rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
