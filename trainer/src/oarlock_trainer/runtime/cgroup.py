"""What the kernel's control group (v2) grants this container, and what it counted."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
"""This container's own."""


def cpu_limit(root: Path = ROOT) -> float | None:
    """CPUs that the container may use at once, or None where it has no limit or the kernel does not say."""
    try:
        quota, period = (root / "cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError):
        return None


def free_memory(root: Path = ROOT) -> int | None:
    """Bytes below the container's limit, those of files that could be read again included; None where it has no limit.

    Files in memory are none of those: the kernel counts them as anonymous.
    """
    try:
        limit = (root / "memory.max").read_text().strip()
        lines = (root / "memory.stat").read_text().splitlines()
        counts = dict(line.split(" ", 1) for line in lines)
        used = int((root / "memory.current").read_text()) - int(counts["inactive_file"]) - int(counts["active_file"])
        return None if limit == "max" else int(limit) - used
    except (OSError, ValueError, KeyError):
        return None


def available_memory() -> int:
    """Bytes that this container may still take: what its node can give without swapping, below its limit. Raises OSError."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    available = next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable")) * 1024
    below_limit = free_memory()
    return available if below_limit is None else min(available, below_limit)


def cores_of_the_ranks() -> int:
    """Processors that all ranks of this pod have together. To be asked by a rank.

    As the process has them that forked the ranks: a rank itself may be bound to the cores near its GPU (engine/numa.py).
    """
    there = len(os.sched_getaffinity(os.getppid()))
    return int(min(there, cpu_limit() or there))


def out_of_memory_kills(root: Path = ROOT) -> int | None:
    """Count the processes of this container that the kernel killed for memory; None where it does not say."""
    try:
        lines = (root / "memory.events").read_text().splitlines()
        return int(dict(line.split(" ", 1) for line in lines)["oom_kill"])
    except (OSError, ValueError, KeyError):
        return None


def cpu_periods(root: Path = ROOT) -> tuple[int, int] | None:
    """Count the periods of the CPU limit, and those in which it was used up; None where there is none, or nothing is said."""
    try:
        lines = (root / "cpu.stat").read_text().splitlines()
        counts = dict(line.split(" ", 1) for line in lines)
        return int(counts["nr_periods"]), int(counts["nr_throttled"])
    except (OSError, ValueError, KeyError):
        return None


def storage_stall(path: Path) -> float | None:
    """Seconds in which some process waited for storage, by a file of the kernel's pressure stall information (PSI)."""
    try:
        some = path.read_text().splitlines()[0].split()
        return int(dict(each.split("=", 1) for each in some[1:])["total"]) / 1e6
    except (OSError, ValueError, KeyError, IndexError):
        return None
