"""A job's output where it is mounted here: found by its name, and believed by the uid that its fence has.

It is read with the rights of the server's process, not with the caller's: only a server of the caller's own has outputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from oarlock.facts.folder import NoOutputError, read_output
from oarlock.facts.model import Output
from oarlock.rows import part
from oarlock_api.contract.history import METRICS
from oarlock_api.contract.layout import OWNER, parse_owner
from oarlock_api.contract.regular_file import read_regular
from oarlock_api.contract.wire import WireError, text

MOST_OWNER = 4096


def find_output(outputs: Path | None, job: Mapping[str, Any]) -> Path | None:
    """The job's folder below `outputs`, or that itself; None where neither is this very job's."""
    metadata = part(job, "metadata")
    directory = text(part(part(job, "spec"), "output").get("directory"), 253) or text(metadata.get("name"), 253)
    if outputs is None or not directory or "/" in directory or directory.startswith("."):
        return None
    return next((folder for folder in (outputs / directory, outputs) if _owner(folder) == metadata.get("uid")), None)


def output_of(outputs: Path | None, job: Mapping[str, Any]) -> Output | None:
    """What lies in it; None where it is not here, or cannot be read."""
    folder = find_output(outputs, job)
    if folder is None:
        return None
    with suppress(NoOutputError, OSError):
        return _read(folder, (folder / METRICS).stat().st_mtime_ns if (folder / METRICS).is_file() else 0)
    return None


@lru_cache(maxsize=8)
def _read(folder: Path, _: int) -> Output:
    """Once for each change of its figures."""
    return read_output(folder)[0]


def _owner(folder: Path) -> str | None:
    try:
        return parse_owner(read_regular(folder / OWNER, most=MOST_OWNER).decode(errors="replace")).job_uid
    except (OSError, WireError):
        return None
