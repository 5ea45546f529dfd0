"""What is wrong with the network between the nodes, in words: from what the collective check measured, and what it found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oarlock_trainer.health.fabric import read_fabric

if TYPE_CHECKING:
    from oarlock_trainer.preflight.collective import exercise
    from oarlock_trainer.preflight.collective.node_names import NodeNames

_FABRIC_FLOOR = 10
"""GB/s: less than one port of 100 Gbit/s carries, and so less than any InfiniBand beside GPUs."""


def slow_network(times: exercise.Times, names: NodeNames, *, floor: int | None) -> str:
    """What is wrong with the network between the nodes, empty where nothing is. Pure.

    `floor`: GB/s of bus bandwidth, None = 10 where every node has InfiniBand, else none.
    """
    found = [
        f"{names.many(node for node in times.fabric if times.fabric[node] == words)}: {words}"
        for words in sorted(set(times.fabric.values()) - {""})
    ]
    least = (_FABRIC_FLOOR if times.fabric.keys() == times.ring.keys() else 0) if floor is None else floor
    if times.bus_bandwidth < least:
        found.append(
            f"The bus bandwidth of {times.bus_bandwidth:.2g} GB/s is below {least} (spec.preflight.minBusBandwidth): "
            "compare with nccl-tests' all_reduce_perf on these nodes"
        )
    return ". ".join(found)


def hindrance() -> str:
    """What may be why NCCL failed, to end a sentence with; empty where nothing is known."""
    found = read_fabric().hindrance()
    return f". {found}" if found else ""
