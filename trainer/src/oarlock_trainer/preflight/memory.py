"""Find out whether this node has room for the state that recovery.memory keeps there, before anything is imported.

It only warns, and knows the state's size by that of the model's files: once the model is loaded, the ranks measure what it
really takes, and without room for it training goes on with checkpoints alone.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from oarlock_api.contract.status import CheckResult
from oarlock_trainer.preflight import room
from oarlock_trainer.preflight.finding import Check, Finding
from oarlock_trainer.runtime import cgroup

_GENERATIONS = 2
"""While one is written, the other one counts."""
_GB = 1e9


def find(*, directory: str, values: int, nodes: int, folder: str, copies: bool, node: str = "") -> Finding:
    """The check as preflight orders it. The model lies in `directory`; a checkpoint has so many `values` of a parameter.

    `folder` is what is kept in; with `copies` as much of another node is kept there.
    """
    state = room.estimate(Path(directory), keep=0, values=values)
    if state is None:
        said = f"memory: {directory} has no weights yet, so how large the state is is known once the model is loaded"
        return Finding(check=Check.MEMORY, result=CheckResult.NOT_SUPPORTED, detail=said)
    where = f"node {node}" if node else "this pod"
    free, memory = shutil.disk_usage(folder).free, cgroup.available_memory()
    lacks = judge(state // nodes, copies=copies, free=free, memory=memory)
    if lacks:
        said = f"memory: {where} has {lacks}, or recovery.memory will keep nothing there"
        return Finding(check=Check.MEMORY, result=CheckResult.WARNING, detail=said)
    said = f"memory: {where} has {free / _GB:.1f} GB free for the state of its ranks"
    return Finding(check=Check.MEMORY, result=CheckResult.PASSED, detail=said)


def judge(state: int, *, copies: bool, free: int, memory: int) -> str:
    """What is too little for `state` bytes of the node's ranks, and what mends it; empty where nothing is. Pure.

    `free` is what fits into the folder, `memory` what the pod may still take.
    """
    kept = _GENERATIONS * state * (2 if copies else 1)
    whose = "its ranks' state" + (" and of another node's" if copies else "")
    if kept > free:
        return (
            f"{free / _GB:.1f} GB free in /dev/shm, and two generations of {whose} need about {kept / _GB:.1f} GB: "
            "raise spec.pod.sharedMemory"
        )
    with_checkpoint = kept + state  # checkpoints are copied into memory of the same size
    if with_checkpoint > memory:
        return (
            f"{memory / _GB:.1f} GB of memory left for this pod, and two generations of {whose} and the copy for "
            f"checkpoints need about {with_checkpoint / _GB:.1f} GB: raise spec.pod.resources.limits.memory, or take nodes "
            "with more"
        )
    return ""
