"""The tie between a process and its parent: nothing of ours outlives the agent, however the agent ends."""

from __future__ import annotations

import ctypes
import os
import signal
from typing import IO

_SET_PARENT_DEATH_SIGNAL = 1
"""PR_SET_PDEATHSIG of prctl(2)."""


def die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent dies, and leave at once if that has happened already."""
    ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(128 + signal.SIGKILL)


def pipe(end: IO[bytes] | None) -> IO[bytes]:
    """Our end of a pipe to a child that was started with one."""
    if end is None:
        raise AssertionError("the process was started with pipes")
    return end
