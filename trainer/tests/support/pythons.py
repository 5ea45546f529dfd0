"""Interpreters that an image may have: this one, and a Python 3.10, the oldest that the bundle promises to run on."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

_OLDEST = "3.10"


def oldest() -> Path:
    """A CPython 3.10 of this machine; skips the test where there is none."""
    for candidate in _candidates():
        found = subprocess.run(
            [candidate, "-I", "-c", "import sys; print(sys.version)"], capture_output=True, check=False
        )
        if found.returncode == 0 and found.stdout.decode().startswith(f"{_OLDEST}."):
            return Path(candidate)
    pytest.skip(f"there is no Python {_OLDEST} on the PATH, from uv, or from pyenv")


def _candidates() -> list[str]:
    named = [path] if (path := shutil.which(f"python{_OLDEST}")) else []
    uv = Path(os.environ.get("UV_PYTHON_INSTALL_DIR", Path.home() / ".local/share/uv/python"))
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    kept = [*uv.glob(f"cpython-{_OLDEST}.*/bin/python3"), *pyenv.glob(f"{_OLDEST}.*/bin/python3")]
    return [*named, *(str(path) for path in kept)]


PYTHONS = [pytest.param(lambda: Path(sys.executable), id="this"), pytest.param(oldest, id=_OLDEST)]
"""For tests of what runs in images of others."""
