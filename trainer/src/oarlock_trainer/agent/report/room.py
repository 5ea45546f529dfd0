"""What a container has left of its memory, for whoever must not be what ends it: its processes share one limit."""

from __future__ import annotations

from pathlib import Path

CONTAINER = Path("/sys/fs/cgroup")
"""Of cgroup v2, as a container sees its own."""


def bytes_left(container: Path = CONTAINER) -> int | None:
    """Of the limit, where there is one and it can be read.

    Pages of files that nobody has asked for lately do not count as taken, as with the kubelet: the kernel drops them at once,
    and whoever reads training data fills the container with them.
    """
    try:
        limit, taken = (int((container / name).read_text()) for name in ("memory.max", "memory.current"))
        told = dict(line.split() for line in (container / "memory.stat").read_text().splitlines())
        return max(limit - taken + int(told.get("inactive_file", 0)), 0)
    except (OSError, ValueError):  # without a limit it says max
        return None
