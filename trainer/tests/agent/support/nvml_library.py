"""Builds the pretended NVML once for all tests, with the machine's own C compiler."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent / "fake_nvml.c"


def build(folder: Path) -> Path:
    """Compile libnvidia-ml.so.1; skips the test where nothing compiles C."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("this machine has no C compiler: the pretended NVML can't be built")
    library = folder / "libnvidia-ml.so.1"
    options = ["-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", f"-Wl,-soname,{library.name}"]
    subprocess.run([compiler, *options, "-o", str(library), str(SOURCE)], check=True)
    return library
