"""Child processes of PID 1: started without a shell, reaped wherever they come from, none left behind.

As PID 1 the agent inherits every orphan of the container; elsewhere it asks the kernel for the same (subreaper), so
that a rank's forgotten helper process neither stays a zombie nor outlives the agent. Only the main thread may use this
module: children die with the *thread* that started them.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_SET_CHILD_SUBREAPER = 36
"""PR_SET_CHILD_SUBREAPER of prctl(2)."""


def adopt_orphans() -> None:
    """Become the parent of all descendants that lose theirs. PID 1 is that already."""
    if os.getpid() != 1:
        import ctypes  # noqa: PLC0415 - not needed in a container, where the agent is PID 1

        ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def spawn(
    command: list[str],
    *,
    environment: Mapping[str, str],
    inherit: Iterable[int] = (),
    stdout: int | None = None,
    stderr: int | None = None,
) -> int:
    """Start a process in its own process group and return its pid.

    `inherit` are descriptors that it gets under their own numbers, `stdout` and `stderr` those that become its own.
    Raises OSError where the program can't be started.
    """
    passed = list(inherit)
    actions = [(os.POSIX_SPAWN_DUP2, given, own) for given, own in ((stdout, 1), (stderr, 2)) if given is not None]
    for descriptor in passed:
        os.set_inheritable(descriptor, True)  # noqa: FBT003 - the standard library's signature
    try:
        return os.posix_spawn(command[0], command, environment, file_actions=actions, setpgroup=0)
    finally:
        for descriptor in passed:
            os.set_inheritable(descriptor, False)  # noqa: FBT003


def reap() -> dict[int, int]:
    """Collect all children that ended: pid -> exit code, or minus the signal that killed it."""
    ended = {}
    with contextlib.suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            ended[found[0]] = os.waitstatus_to_exitcode(found[1])
    return ended


def kill(pid: int) -> None:
    """SIGKILL a child that is not reaped yet, and its process group."""
    for send in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            send(pid, signal.SIGKILL)


def end_all(*, within: float) -> None:
    """Kill and reap every child, also those that become ours meanwhile.

    Gives up after `within` seconds: a process that is stuck in the kernel (dead mount, GPU driver) can't be killed,
    and nobody is to wait for it.
    """
    deadline = time.monotonic() + within
    while children := _children():
        for pid in children:
            kill(pid)
        reap()
        if time.monotonic() > deadline:
            return
        time.sleep(0.005)


def _children() -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError, ValueError, IndexError):
                # "pid (name) state ppid ...": a name may hold anything, also spaces and parentheses
                fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
                if int(fields[1]) == os.getpid():
                    found.append(int(entry.name))
    return found
