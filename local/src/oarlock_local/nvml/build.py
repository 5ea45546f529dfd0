"""Builds the pretended NVML once into the cache, with the machine's own C compiler.

The library gets its name only when it is complete, so any number of builders may work at once, and an interrupted
build leaves nothing that looks finished. Its folder is named after its source: another source is another library.
"""

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from oarlock_local.errors import BuildError
from oarlock_local.folders import cache_folder

LIBRARY = "libnvidia-ml.so.1"

_SOURCE = Path(__file__).parent / "library"
_OPTIONS = ("-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC", "-fvisibility=hidden", f"-Wl,-soname,{LIBRARY}")
_COMPILERS = ("cc", "gcc", "clang")


def why_no_library(environ: Mapping[str, str] = os.environ) -> str | None:
    """The reason why there can be no pretended NVML here; None where it is built, or can be."""
    if _cached(environ).exists() or _compiler():
        return None
    return f"no C compiler ({', '.join(_COMPILERS)}) is on PATH: there are no pretended GPUs that NVML could speak of"


def build(environ: Mapping[str, str] = os.environ) -> Path:
    """The library in the cache, built first where it is missing. Raises BuildError with the compiler's words."""
    library = _cached(environ)
    if library.exists():
        return library
    compiler = _compiler()
    if compiler is None:
        raise BuildError(f"{why_no_library(environ)}. Install one, gcc for example.")
    library.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=library.parent, prefix=".unfinished-") as scratch:
        unfinished = Path(scratch) / LIBRARY
        sources = sorted(str(path) for path in _SOURCE.glob("*.c"))
        command = [compiler, *_OPTIONS, "-o", str(unfinished), *sources, "-ldl"]
        result = subprocess.run(command, check=False, capture_output=True, text=True)
        if result.returncode != 0:
            raise BuildError(f"the pretended NVML did not build ({' '.join(command)}):\n{result.stderr.strip()}")
        unfinished.rename(library)
    return library


def install(folder: Path, environ: Mapping[str, str] = os.environ) -> Path:
    """Put the library into a folder, where it obeys the file `control` (see control.Control). Returns its path."""
    library = folder / LIBRARY
    shutil.copyfile(build(environ), library)
    return library


def _cached(environ: Mapping[str, str]) -> Path:
    digest = hashlib.sha256(" ".join(_OPTIONS).encode())
    for path in sorted(_SOURCE.iterdir()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return cache_folder(environ) / "local" / f"nvml-{digest.hexdigest()[:16]}" / LIBRARY


def _compiler() -> str | None:
    return next((found for name in _COMPILERS if (found := shutil.which(name))), None)
