"""Tiny models, each made once and kept in the cache for as long as what makes it stays the same."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

from oarlock_local.folders import cache_folder

_ROOT = Path(__file__).parents[3]
_SOURCE = "trainer/src/oarlock_trainer"
_MAKING = (
    *(path for room in ("commands", "models", "runtime") for path in sorted((_ROOT / _SOURCE / room).rglob("*.py"))),
    _ROOT / "uv.lock",
)
"""What a tiny model is made by."""
_KEPT = 4
"""Models of so many states of these files; older ones are removed."""


def made_tiny(slug: str) -> Path:
    """The tiny model of a family, written by the command for it: this process stays without torch. Nobody changes it.

    All workers and all runs share it: whoever comes first makes it. What the command said lies beside it.
    """
    home = _home()
    directory, seen = home / f"tiny-{slug}", home / f"tiny-{slug}.seen"
    with (home / f"tiny-{slug}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # One that was changed all the same would fail other tests than the one that did it, and for good.
        if not seen.exists() or seen.read_text() != _state(directory):
            shutil.rmtree(directory, ignore_errors=True)
            command = [sys.executable, "-m", "oarlock_trainer", f"make-tiny-{slug}", str(directory)]
            environment = {key: value for key, value in os.environ.items() if key != "DS_ACCELERATOR"}
            made = subprocess.run(command, check=False, capture_output=True, text=True, env=environment, umask=0o022)
            assert made.returncode == 0, made.stdout + made.stderr
            (home / f"tiny-{slug}.said").write_text(made.stdout + made.stderr)
            seen.write_text(_state(directory))
    return directory


@cache
def _home() -> Path:
    digest = hashlib.sha256(sys.version.encode())
    for path in _MAKING:
        digest.update(path.read_bytes())
    home = cache_folder(os.environ) / "tests" / digest.hexdigest()[:16]
    home.mkdir(parents=True, exist_ok=True)
    home.touch()
    with (home.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        states = [folder for folder in home.parent.iterdir() if folder.is_dir()]
        for old in sorted(states, key=lambda folder: folder.stat().st_mtime)[:-_KEPT]:
            shutil.rmtree(old, ignore_errors=True)
    return home


def _state(directory: Path) -> str:
    """Changes with any file in it."""
    files = [(path, path.stat()) for path in sorted(directory.rglob("*"))]
    return "\n".join(f"{path.relative_to(directory)} {facts.st_size} {facts.st_mtime_ns}" for path, facts in files)
