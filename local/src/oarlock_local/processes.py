"""Starting processes that cannot outlive us, ending them, and finding them again.

Nothing here uses threads: a parent-death signal is tied to the thread that started the child.
"""

import ctypes
import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent dies; for `preexec_fn`."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def start_logged(
    command: Sequence[str], log: Path, *, stdin: int | None = None, environ: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a process that writes to a log file and dies with us; `environ` adds to our own environment."""
    with log.open("ab") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL if stdin is None else stdin,
            stdout=output,
            stderr=output,
            env={**os.environ, **(environ or {})},
            # Safe: single-threaded, and prctl allocates nothing.
            preexec_fn=die_with_parent,  # noqa: PLW1509
        )


def stop(process: subprocess.Popen[bytes], *, seconds: float = 60) -> None:
    """Ask a process of ours to end, and kill it where it has not within that time."""
    process.terminate()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Let a Ctrl-C that comes within the block count at its end. Programs started in it do not inherit that."""
    # Python interrupts its main thread alone.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _frame: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        signal.raise_signal(signal.SIGINT)


def children(parent: int) -> list[int]:
    """The direct children of a process, in our process namespace."""
    return sorted(pid for pid, fields in _stats().items() if int(fields[1]) == parent)


def cpu_seconds_below(parent: int) -> float:
    """What all descendants of a process have computed, also those that ended; not the process itself."""
    stats = _stats()
    ticks, generation = 0, [parent] if parent in stats else []
    while generation:
        # Of each its user and system time, and both of those of its children that it has waited for.
        ticks += sum(int(field) for pid in generation for field in stats[pid][13 if pid == parent else 11 : 15])
        generation = [pid for pid, fields in stats.items() if int(fields[1]) in generation]
    return ticks / os.sysconf("SC_CLK_TCK")


def program_of(pid: int) -> str:
    """The base name under which a process was started; empty where it is gone."""
    try:
        return Path(Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].decode()).name
    except (FileNotFoundError, ProcessLookupError):
        return ""


def start_time(pid: int) -> int | None:
    """When a process was started, in ticks since boot: with the id, it tells processes apart for good."""
    fields = _stat(pid)
    return int(fields[19]) if fields else None


def remember(pid: int, path: Path) -> None:
    """Write down which process that is."""
    path.write_text(json.dumps({"pid": pid, "startTime": start_time(pid)}))


def kill_remembered(path: Path) -> None:
    """Kill the process that was written down, unless it is gone and its id belongs to another by now."""
    try:
        known = json.loads(path.read_text())
    except FileNotFoundError:
        return
    if start_time(known["pid"]) == known["startTime"]:
        os.kill(known["pid"], signal.SIGKILL)


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from its state on; none where the process is gone."""
    try:
        # The name in parentheses may hold anything; the fields after the last one are plain.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def _stats() -> dict[int, list[str]]:
    """The same of each process in our process namespace."""
    pids = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
    return {pid: fields for pid in pids if (fields := _stat(pid))}
