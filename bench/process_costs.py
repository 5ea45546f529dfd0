"""What processes cost: CPU time and memory, from /proc."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """User and system time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def all_cpu_seconds(pids: Iterable[int]) -> float:
    """User and system time of several processes together."""
    return sum(cpu_seconds(pid) for pid in pids)


def machine_cpu_seconds() -> float:
    """What all processes of this machine have used together."""
    user, nice, system, _idle, _wait, irq, softirq, *_ = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    return sum(int(ticks) for ticks in (user, nice, system, irq, softirq)) / TICKS


def resident_mib(pid: int) -> float:
    """Resident memory of a process."""
    return _memory(pid, "VmRSS")


def peak_mib(pid: int) -> float:
    """The most resident memory of a process since `reset_peak`."""
    return _memory(pid, "VmHWM")


def reset_peak(pid: int) -> None:
    """Let the peak be what is resident now."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def _memory(pid: int, name: str) -> float:
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1]) / 1024
