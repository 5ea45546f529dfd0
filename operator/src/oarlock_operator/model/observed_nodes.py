"""What one pass sees of nodes: those of its pods that need a look, and the pool that brakes are sized by.

Plain frozen data, as in `observation`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from oarlock_operator.model.node_maintenance import Maintenance

GPU_RESOURCES = ("nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe")
"""What GPUs are called on nodes, unless the operator's settings say otherwise."""


@dataclass(frozen=True, slots=True)
class NodeStrike:
    """A time at which a GPU of a node restarted a gang. `job`: a mark of whose; empty where it is not told."""

    gpu_uuid: str
    time: datetime
    job: str = ""
    xid: int | None = None


@dataclass(frozen=True, slots=True)
class CordonMark:
    """A node that Oarlock cordoned, or is about to, for which job (namespace/name), and when that was decided.

    `done`: when it was known to stand; None where it may still fail.
    """

    node: str
    job: str
    time: datetime
    done: datetime | None = None

    @property
    def namespace(self) -> str:
        """Whose share of the cordons it is."""
        return self.job.partition("/")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node that needs a look. `unreachable`: the node controller has not heard from it; `boot_id` is "" if unknown.

    `maintenance`: why somebody wants it emptied. `strikes`: what its GPUs have done to gangs before. `cordon`: the last
    mark that Oarlock wrote on this very node (`uid`), whether or not it still stands. `given_back`: since when a person says
    that it is mended.
    """

    name: str
    uid: str = ""
    exists: bool = True
    ready: bool = True
    unreachable: bool = False
    boot_id: str = ""
    maintenance: Maintenance | None = None
    unschedulable: bool = False
    cordon: CordonMark | None = None
    given_back: datetime | None = None
    strikes: tuple[NodeStrike, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Brakes:
    """Limits to cordoning, from the operator's settings. `breaker` names the ConfigMap that latches it."""

    max_nodes: int = 2
    max_percent: float = 10.0
    namespace_max_nodes: int = 1
    namespace_max_percent: float = 2.0
    window_seconds: int = 3600
    allow_below_gang: bool = False
    breaker: str = "oarlock-cordon-breaker"
    """Name of its ConfigMap."""
    namespace: str = ""
    """Where that lies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolNode:
    """What a brake asks of one node. `gpus`: UUIDs and serial numbers that it publishes, none where it does not."""

    uid: str
    made: datetime | None = None
    resources: frozenset[str] = frozenset()
    gpus: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """The nodes with GPUs that the operator may cordon, by its settings alone: no job's values choose or count them.

    `schedulable`: how many of them take pods. `ours`: marks that stand. `known`: other cordons that are remembered, or that
    jobs still wish for. `unreadable`: why the pool is not known.
    """

    size: int
    schedulable: int
    unschedulable: frozenset[str] = frozenset()
    ours: tuple[CordonMark, ...] = ()
    known: tuple[CordonMark, ...] = ()
    members: Mapping[str, PoolNode] = field(default_factory=dict)
    latched: str = ""
    unreadable: str = ""
    brakes: Brakes = field(default_factory=Brakes)
