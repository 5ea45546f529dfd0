"""What the kernel counts of a rank at one moment: two of these, some seconds apart, tell what it has waited for.

Files of /proc and of the control group alone; the rank itself is not asked, and feels nothing of it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from oarlock_trainer.runtime import cgroup

_PROC = Path("/proc")


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Seconds are sums since some start of the kernel's, `at` is monotonic. None where the kernel does not say.

    `waited`: for which the rank's main thread was ready to run, and had no processor: whoever took it, a limit of its pod or
    of anything above that, or another process. `periods`: those of the pod's own CPU limit, and those in which it was used
    up. `stalled`: in which a process of the pod waited for storage; of the node, where its pods are not told apart.
    """

    at: float
    waited: float | None = None
    periods: tuple[int, int] | None = None
    stalled: float | None = None
    of_the_node: bool = False


def counts(pid: int | None, *, proc: Path = _PROC, group: Path = cgroup.ROOT) -> Counts:
    """Of a rank by its pid; without one, of its pod alone."""
    own = cgroup.storage_stall(group / "io.pressure")
    return Counts(
        at=time.monotonic(),
        waited=_run_delay(proc / str(pid) / "schedstat") if pid else None,
        periods=cgroup.cpu_periods(group),
        stalled=own if own is not None else cgroup.storage_stall(proc / "pressure/io"),
        of_the_node=own is None,
    )


def _run_delay(path: Path) -> float | None:
    """The second number of a process's schedstat, which is its main thread's: nanoseconds on a run queue."""
    try:
        return int(path.read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return None
