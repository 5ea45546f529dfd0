"""The Python stacks of this node's ranks, asked for by a signal: also of a rank that is blocked in native code.

Each rank has a file in memory that the agent made and can read without the rank's help, and faulthandler's C handler
writes into it: it needs neither the interpreter's lock nor a disk. A stopped rank answers when it is continued. What
can't answer (a rank deep in the kernel, in a driver or on a dead mount) leaves its file empty.
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

from oarlock_trainer.ranks import rank_host

_LONGEST = 256 * 1024
_THREAD = re.compile(r"^(?:Current thread|Thread) 0x[0-9a-f]+.*:$", re.MULTILINE)
_FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.*)$', re.MULTILINE)
STOPPED = "stopped by a signal"
"""The one state that a signal ends, too."""
_STATES = {
    "T": STOPPED,
    "t": "stopped by a debugger",
    "D": "waiting in the kernel for a device or a mount",
}
"""Letters of proc(5) that explain a hang."""


class Stacks:
    """The files of `count` ranks, by local rank."""

    def __init__(self, count: int) -> None:
        self._files = [os.memfd_create(f"stacks-of-local-rank-{local}") for local in range(count)]

    @property
    def descriptors(self) -> list[int]:
        """What the rank host must inherit."""
        return list(self._files)

    def forget(self) -> None:
        """Empty the files. A rank goes on at the beginning: it has inherited the place where it writes, and shares it."""
        for descriptor in self._files:
            os.ftruncate(descriptor, 0)
            os.lseek(descriptor, 0, os.SEEK_SET)

    def environment(self, local_rank: int) -> dict[str, str]:
        """What tells a rank which file is its own."""
        return {rank_host.STACKS_FD: str(self._files[local_rank])}

    def read(self, local_rank: int) -> str:
        """Everything that the rank has written."""
        return os.pread(self._files[local_rank], _LONGEST, 0).decode(errors="replace")


def top_frame(stacks: str) -> str:
    """Where the main thread stands, `function (folder/file.py:12)`; empty where the text does not tell.

    faulthandler writes the newest thread first, so the main thread is the last.
    """
    headers = list(_THREAD.finditer(stacks))
    found = _FRAME.search(stacks, headers[-1].end()) if headers else None
    if found is None:
        return ""
    file = "/".join(Path(found["file"]).parts[-2:])
    return f"{found['function']} ({file}:{found['line']})"


def explaining_state(pid: int | None) -> str:
    """What keeps a process from running, in words; empty for one that runs, merely sleeps, or is gone."""
    if pid is None:
        return ""
    with contextlib.suppress(OSError, IndexError):
        # "pid (name) state ...": a name may hold anything, also spaces and parentheses
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
        return _STATES.get(stat.rpartition(")")[2].split()[0], "")
    return ""
