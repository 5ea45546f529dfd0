"""Whether a node has the memory that its ranks' files need: what each rank measures, and what all make of it."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from oarlock_trainer.checkpoint.memory.files import SLOTS, remove_all_but
from oarlock_trainer.checkpoint.memory.held import by_rank
from oarlock_trainer.runtime import cgroup

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from oarlock_trainer.runtime.job import RankInfo

_GB = 1e9


@dataclass(frozen=True, slots=True)
class Room:
    """Of one rank's node, and what this rank needs of it. Bytes.

    `folder` is free in the folder's file system, `memory` for this pod; `needs` is one file, `has` what lies there already
    to be written over, with the copy of another node's rank where there is one.
    """

    node: str
    folder: int
    memory: int
    needs: int
    has: int


def measure(folder: Path, *, node: str, needs: int, has: int) -> Room:
    """What is there now. Raises OSError."""
    return Room(node, shutil.disk_usage(folder).free, cgroup.available_memory(), needs, has)


def clear_others(folder: Path, info: RankInfo) -> None:
    """Remove this rank's share of what lies there of ranks that are neither of this node nor of the one before.

    Raises OSError.
    """
    first, size = info.rank - info.local_rank, info.local_world_size
    before = (first - size) % info.world_size
    ours = {*range(first, first + size), *range(before, before + size)}
    others_share = {rank for rank in by_rank(folder) if rank % size != info.local_rank}
    remove_all_but(folder, ours | others_share)


def lacking(rooms: Sequence[Room], *, ranks_per_node: int, ring: bool = False) -> str:
    """What a node lacks, in one sentence; empty where all have enough. `rooms` of all ranks, in their order.

    `ring`: each node has as much of the node before it, the first one of the last.
    """
    whose = "its ranks' state" + (" and of another node's" if ring else "")
    for start in range(0, len(rooms), ranks_per_node):
        ranks = rooms[start : start + ranks_per_node]
        first = ranks[0]
        copied = rooms[(start - ranks_per_node) % len(rooms) :][:ranks_per_node] if ring else []
        more = sum(len(SLOTS) * room.needs for room in (*ranks, *copied)) - sum(room.has for room in ranks)
        # Checkpoints are copied into memory of the same size, whose pages may still be on their way.
        with_checkpoint = more + sum(room.needs for room in ranks)
        where = f"node {first.node}" if first.node else f"the node of rank {start}"
        if more > first.folder:
            return (
                f"{where} has {first.folder / _GB:.1f} GB free in /dev/shm, two generations of {whose} need "
                f"{more / _GB:.1f} GB: raise spec.pod.sharedMemory"
            )
        if with_checkpoint > first.memory:
            return (
                f"{where} has {first.memory / _GB:.1f} GB of memory left for this pod, two generations of {whose} "
                f"and the copy for checkpoints need {with_checkpoint / _GB:.1f} GB: raise spec.pod.resources.limits.memory, "
                "or take nodes with more"
            )
    return ""
