"""What recovery.memory takes of a node, beside what its pod may have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oarlock_api.contract.rounds import InPlace
from oarlock_api.quantity import whole_bytes
from oarlock_trainer.plan.memory import GB, host_bytes, saved_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oarlock_api.spec import TrainingJobSpec
    from oarlock_trainer.plan.work import Workload


def in_memory(work: Workload, spec: TrainingJobSpec) -> Iterator[str]:
    """What two generations of a node's state take, and each bound that they are above; nothing where it is off.

    A gang of several nodes is taken for one whose lost pods are replaced one by one, as most are: then each node has as much
    of the node before it, and the ranks ask for both before they keep anything.
    """
    if spec.recovery.in_place is InPlace.NEVER or spec.recovery.memory.every_steps == "0":
        return
    ranks = min(work.ranks, work.ranks_per_node)
    needed = 2 * saved_bytes(work) * ranks
    whose = "its ranks' state, twice"
    if work.ranks > ranks:
        needed *= 2
        whose += ", and that of the node before (half of it where lost pods are not replaced one by one)"
    yield f"in memory     {needed / GB:.1f} GB of each node for recovery.memory: {whose}"
    shared = whole_bytes(spec.pod.shared_memory)
    if needed > shared:
        yield f"              more than pod.sharedMemory, {shared / GB:.1f} GB: raise it, or nothing is kept there"
    limit = (spec.pod.resources.limits or {}).get("memory")
    rest = host_bytes(work) * ranks
    if limit is not None and needed + rest > whole_bytes(str(limit)):
        yield (
            f"              with the rest {(needed + rest) / GB:.1f} GB, more than the pod's limit of "
            f"{whole_bytes(str(limit)) / GB:.1f}: raise pod.resources.limits.memory, or nothing is kept there"
        )
    if spec.elastic:
        most = shared if limit is None else min(shared, whole_bytes(str(limit)) - rest)
        yield from _with_fewer_nodes(saved_bytes(work) * work.ranks, spec.elastic.min_nodes, most)


def _with_fewer_nodes(state: float, nodes: int, most: float) -> Iterator[str]:
    """What an elastic gang needs of each node once it is smaller, and has `most` of. `state`: bytes of all nodes', once."""
    kept = state + (4 if nodes > 1 else 2) * state / nodes
    yield (
        f"              with {nodes} nodes (spec.elastic) {state / GB:.1f} GB of each to go on from memory, and "
        f"{kept / GB:.1f} GB to keep the state there again"
    )
    if kept > most:
        lacks = "go on from the newest checkpoint" if state > most else "may keep nothing there"
        yield (
            f"              sharedMemory, and the memory limit less the rest, have {most / GB:.1f} GB: raise them, or fewer "
            f"nodes {lacks}"
        )
