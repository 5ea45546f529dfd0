"""Child processes of PID 1: started without a shell, reaped wherever they come from, none left behind.

As PID 1 the agent inherits every orphan of the container; elsewhere it asks the kernel for the same (subreaper), so
that a rank's forgotten helper process neither stays a zombie nor outlives the agent. Only the main thread may use this
module: children die with the *thread* that started them.

What `spawn` starts stays in the agent's session. A program that was started in another session, and all that descends from
it, can never come back into that one: so the session tells the two apart, however often a launcher changes its group.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_SET_CHILD_SUBREAPER = 36
"""PR_SET_CHILD_SUBREAPER of prctl(2)."""
_FORKED_ONLY = 0x40
"""PF_FORKNOEXEC of the kernel's include/linux/sched.h, among the flags of proc_pid_stat(5)."""
_ENDED = frozenset("ZX")
"""States of a process that has ended and is not reaped, or is being reaped."""


@dataclass(frozen=True, slots=True)
class _Process:
    """What /proc tells of a process. `part` = it was forked from its parent and still runs the parent's program."""

    pid: int
    parent: int
    session: int
    part: bool
    lives: bool


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


def signal_others(number: int) -> None:
    """Send a signal once to each living descendant in another session than ours, whatever its process group.

    Left out are parts of a program that handles the signal itself: they are told by it. PyTorch's data loader ends its
    program when somebody else ends one of its workers, also in the midst of a checkpoint.
    """
    others = {one.pid: one for one in _others()}
    # An orphan's parent is this process: nobody else would tell it.
    parts = [one for one in others.values() if one.part and one.parent in others]
    told = {one.pid for one in parts if _handles(one.parent, number)}
    for pid in others.keys() - told:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def others_live() -> bool:
    """Whether a descendant in another session than ours lives."""
    return bool(_surely_others())


def kill_others() -> bool:
    """SIGKILL each living descendant in another session than ours; whether there was none."""
    others = _surely_others()
    for one in others:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(one.pid, signal.SIGKILL)
    return not others


def end_all(*, within: float) -> bool:
    """Kill and reap every child, also those that become ours meanwhile; whether none is left.

    Gives up after `within` seconds: a process that is stuck in the kernel (dead mount, GPU driver) can't be killed,
    and nobody is to wait for it.
    """
    deadline = time.monotonic() + within
    while children := _children():
        for pid in children:
            kill(pid)
        reap()
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def _children() -> list[int]:
    return [one.pid for one in _processes() if one.parent == os.getpid()]


def _surely_others() -> list[_Process]:
    # Looking takes time: a process that is born meanwhile, of a parent that ends meanwhile, is seen by the second look.
    return _others() or _others()


def _others() -> list[_Process]:
    below = defaultdict(list)
    for one in _processes():
        below[one.parent].append(one)
    found, parents, own = [], [os.getpid()], os.getsid(0)
    while parents:
        for one in below[parents.pop()]:
            parents.append(one.pid)
            if one.lives and one.session != own:
                found.append(one)
    return found


def _processes() -> Iterator[_Process]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError, ValueError, IndexError):
                # "pid (name) state ppid pgrp session tty tpgid flags ...": a name may hold anything, also parentheses
                fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
                yield _Process(
                    pid=int(entry.name),
                    parent=int(fields[1]),
                    session=int(fields[3]),
                    part=bool(int(fields[6]) & _FORKED_ONLY),
                    lives=fields[0] not in _ENDED,
                )


def _handles(pid: int, number: int) -> bool:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines():
            name, _, mask = line.partition(":")
            if name == "SigCgt":
                return bool(int(mask, 16) >> (number - 1) & 1)
    return False
