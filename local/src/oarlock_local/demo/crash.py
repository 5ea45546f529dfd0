"""The crash of the demo, of tests and of benchmarks: one rank's process dies, as by the kernel's hand."""

from __future__ import annotations

from oarlock_local.cluster import Cluster

_KILL = 'for p in /proc/[0-9]*; do [ "$(cat "$p/comm")" = rank-{rank} ] && kill -9 "${{p#/proc/}}"; done; true'
"""Run by a shell inside the pod: a rank's process is named after it."""


def kill_rank(cluster: Cluster, pod: str, rank: int) -> None:
    """Kill the process of a rank (by its global number) in a pod by SIGKILL."""
    cluster.kubectl("exec", pod, "--", "sh", "-c", _KILL.format(rank=rank))
