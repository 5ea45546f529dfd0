"""A node as the API tells it: only the fields that are read, straight into structures, because of thousands.

A whole node is 16 KB and more, most of it the names of its images; many have dozens of labels. Whoever looks at all nodes
decodes what he reads himself.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec import Struct, field

from oarlock_operator.pods.pod_facts import Condition


class Taint(Struct, frozen=True):
    """A taint."""

    key: str = ""
    value: str | None = None
    effect: str = ""


class Status(Struct, frozen=True):
    """A node's status."""

    capacity: dict[str, str] | None = None
    allocatable: dict[str, str] | None = None
    conditions: tuple[Condition, ...] | None = None


class _PoolMetadata(Struct, frozen=True, rename="camel"):
    name: str = ""
    uid: str = ""
    creation_timestamp: datetime | None = None
    annotations: dict[str, str] | None = None


class _PoolSpec(Struct, frozen=True):
    unschedulable: bool | None = None


class PoolFacts(Struct, frozen=True):
    """What the brakes ask of a node."""

    metadata: _PoolMetadata
    spec: _PoolSpec = field(default_factory=_PoolSpec)
    status: Status = field(default_factory=Status)

    @property
    def ready(self) -> bool:
        """Whether its kubelet says that it takes pods."""
        return any((one.type, one.status) == ("Ready", "True") for one in self.status.conditions or ())

    def has(self, resource: str) -> bool:
        """Whether it has any of a resource, healthy or not: what is broken may be missing from what is allocatable."""
        return any(
            (amounts or {}).get(resource, "0") != "0" for amounts in (self.status.capacity, self.status.allocatable)
        )


class _PlacementMetadata(Struct, frozen=True):
    name: str = ""
    labels: dict[str, str] | None = None


class _PlacementSpec(Struct, frozen=True):
    unschedulable: bool | None = None
    taints: tuple[Taint, ...] | None = None


class PlacementFacts(Struct, frozen=True):
    """What placement asks of a node."""

    metadata: _PlacementMetadata
    spec: _PlacementSpec = field(default_factory=_PlacementSpec)
    status: Status = field(default_factory=Status)

    def as_json(self) -> dict[str, Any]:
        """The same as the API would write it."""
        conditions = [{"type": one.type, "status": one.status} for one in self.status.conditions or ()]
        taints = [{"key": one.key, "value": one.value, "effect": one.effect} for one in self.spec.taints or ()]
        return {
            "metadata": {"name": self.metadata.name, "labels": self.metadata.labels or {}},
            "spec": {"unschedulable": bool(self.spec.unschedulable), "taints": taints},
            "status": {"allocatable": self.status.allocatable or {}, "conditions": conditions},
        }
