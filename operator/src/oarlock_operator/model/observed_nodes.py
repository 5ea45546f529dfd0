"""What one pass sees of nodes: those of its pods that need a look, and the pool that brakes are sized by.

Plain frozen data, as in `observation`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from oarlock_api.contract.node_marks import BREAKER, LEDGER
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

    `done`: when it was known to stand; None where it may still fail. `uid`: the job's, where it is known.
    """

    node: str
    job: str
    time: datetime
    done: datetime | None = None
    uid: str = ""

    @property
    def key(self) -> tuple[str, str, datetime]:
        """What tells one decision from all others."""
        return self.node, self.job, self.time

    @property
    def namespace(self) -> str:
        """Whose share of the cordons it is."""
        return self.job.partition("/")[0]


@dataclass(frozen=True, slots=True)
class Ledger:
    """The cordons that were entered, at a version of the object that holds them; that is empty where there is none."""

    entries: tuple[CordonMark, ...] = ()
    version: str = ""


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
    """Limits to cordoning, from the operator's settings."""

    max_nodes: int = 2
    max_percent: float = 10.0
    namespace_max_nodes: int = 1
    namespace_max_percent: float = 2.0
    window_seconds: int = 3600
    allow_below_gang: bool = False
    breaker: str = BREAKER
    """The ConfigMap that stops all cordoning."""
    ledger: str = LEDGER
    """The ConfigMap in which cordons are entered."""
    namespace: str = ""
    """Where both lie."""


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

    `schedulable`: how many of them take pods. `ours`: marks that stand. `ledger`: every cordon that was entered, whether or
    not it stands, or was ever done. `unreadable`: why the pool is not known, in words.
    """

    size: int
    schedulable: int
    unschedulable: frozenset[str] = frozenset()
    ours: tuple[CordonMark, ...] = ()
    ledger: Ledger = field(default_factory=Ledger)
    members: Mapping[str, PoolNode] = field(default_factory=dict)
    latched: str = ""
    unreadable: str = ""
    brakes: Brakes = field(default_factory=Brakes)
