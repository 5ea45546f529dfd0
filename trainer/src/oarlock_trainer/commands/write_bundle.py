"""Writes the bundle: our modules that the agent needs and nvidia-ml-py, in one file that Python runs (a zipapp).

Everything in it is source, stored as it is: it runs on whichever CPython (3.10 or newer) an image has, without zlib. What
it may import besides is the standard library alone, which a test holds it to.
"""

from __future__ import annotations

import importlib.util
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from oarlock_api.contract.environment import AGENT_FILE

if TYPE_CHECKING:
    from collections.abc import Iterator

_MAIN = "from oarlock_trainer.bundle.start import main\n\nmain()\n"
_RUNTIME = (
    "__init__",
    "assignment",
    "atomic_write",
    "cgroup",
    "channel",
    "children",
    "clock",
    "error_summary",
    "notes",
    "notifier",
    "own_module",
    "parent",
    "pipe_lines",
    "wakeup",
)
_OURS = {
    "oarlock": (
        "__init__.py",
        "clock.py",
        "explain",
        "facts/__init__.py",
        "facts/folder.py",
        "facts/model.py",
        "in_words.py",
        "names.py",
        "parts.py",
        "report",
        "story.py",
    ),
    "oarlock_api": ("__init__.py", "contract", "naming.py"),
    "oarlock_trainer": (
        "__init__.py",
        "agent",
        "bundle",
        "checkpoint/__init__.py",
        "checkpoint/memory/__init__.py",
        "checkpoint/memory/files.py",
        "checkpoint/memory/held.py",
        "cli.py",
        "commands/__init__.py",
        "commands/checkpoints_arguments.py",
        "commands/job_arguments.py",
        "health",
        "preflight",
        "ranks/__init__.py",
        "ranks/rank_host.py",
        *(f"runtime/{name}.py" for name in _RUNTIME),
    ),
}
"""Package -> what of it the agent and its helpers import."""
_LEFT_OUT = {"explain/page.py", "explain/prose.py", "health/reference.py", "preflight/collective"}
"""What makes pages of the documentation, what terminals alone need, and what the ranks alone use."""
_FILES = {".py", ".css", ".js"}
_OTHERS = ("pynvml",)


def write(folder: Path) -> Path:
    """Write the bundle into a folder, whole or not at all, and return its path. Raises OSError."""
    target = folder / AGENT_FILE
    fresh = folder / f".{AGENT_FILE}.new"
    # Files of images may be dated before 1980, where zip's time begins.
    with zipfile.ZipFile(fresh, "w", zipfile.ZIP_STORED, strict_timestamps=False) as bundle:
        bundle.writestr(zipfile.ZipInfo("__main__.py"), _MAIN)  # without the time: the same source is the same file
        for path, name in sorted(_contents(), key=lambda entry: entry[1]):
            bundle.write(path, name)
    fresh.chmod(0o644)  # whoever runs the image's trainer reads it
    fresh.replace(target)
    return target


def _contents() -> Iterator[tuple[Path, str]]:
    """Each file and its name in the bundle."""
    for package, parts in _OURS.items():
        root = _origin(package).parent
        for part in parts:
            place = root / part
            for path in sorted(place.rglob("*")) if place.is_dir() else (place,):
                if path.suffix in _FILES and not any(
                    path.relative_to(root).is_relative_to(other) for other in _LEFT_OUT
                ):
                    yield path, f"{package}/{path.relative_to(root).as_posix()}"
    for module in _OTHERS:
        yield _origin(module), f"{module}.py"


def _origin(module: str) -> Path:
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"{module} is not installed beside the agent", name=module)
    return Path(spec.origin)
