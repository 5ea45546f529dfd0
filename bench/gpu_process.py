"""A slice's process: bounded, with a folder of its own for temporary files, and outlived by nothing that it started.

Whatever is started with the mark in its environment belongs to a day in one folder, also what left the slice's process group,
and what is left of a day whose own process was killed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

MARK = "OARLOCK_GPU_DAY"
SECONDS_TO_END = 10.0
"""Between SIGTERM and SIGKILL: an agent has its ranks end and writes its report."""
_PROC = Path("/proc")


def run(
    command: Sequence[str],
    *,
    folder: Path,
    log: Path,
    environment: Mapping[str, str],
    seconds: float,
    directory: Path,
) -> int | None:
    """The exit code; None where it was ended at its bound. `folder`: the day's; `directory`: where it runs."""
    scratch = Path(tempfile.gettempdir(), f"gpu-day-{os.getuid()}")
    _remove(scratch)
    scratch.mkdir()
    marked = {**environment, MARK: str(folder), "TMPDIR": str(scratch)}
    try:
        with log.open("ab") as output:
            process = subprocess.Popen(
                command, cwd=directory, env=marked, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                start_new_session=True,
            )  # fmt: skip
            try:
                return process.wait(seconds)
            except subprocess.TimeoutExpired:
                return None
            finally:
                _end(process)
                end_marked(folder)
    finally:
        _remove(scratch)


def end_marked(folder: Path) -> list[int]:
    """Kill what any slice of the folder's day left behind, and wait until its memory on the GPU is free; the numbers."""
    ended: set[int] = set()
    deadline = time.monotonic() + SECONDS_TO_END
    while (left := set(_marked(folder))) and time.monotonic() < deadline:
        ended |= left
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)
    return sorted(ended)


def _end(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
            os.killpg(process.pid, number)
            process.wait(SECONDS_TO_END)


def _marked(folder: Path) -> Iterator[int]:
    """Processes whose environment has the mark. Other users' environments can't be read, and are not ours."""
    mark = os.fsencode(f"{MARK}={folder}")
    for path in _PROC.glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if mark in path.read_bytes().split(b"\0") and (pid := int(path.parent.name)) != os.getpid():
                yield pid


def _remove(scratch: Path) -> None:
    """A slice that was killed leaves gigabytes: a checkpoint's are 12 bytes a parameter."""
    shutil.rmtree(scratch, ignore_errors=True)
