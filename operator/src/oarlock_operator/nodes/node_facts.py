"""A node as the API tells it: only the fields that are read, straight into structures, because of thousands.

A whole node is 16 KB and more, most of it the names of its images.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec import Struct, field

from oarlock_operator.pods.pod_facts import Condition


class NodeMetadata(Struct, frozen=True, rename="camel"):
    """The part of a node's metadata that is read."""

    name: str = ""
    uid: str = ""
    creation_timestamp: datetime | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class Taint(Struct, frozen=True):
    """A taint."""

    key: str = ""
    value: str | None = None
    effect: str = ""


class Spec(Struct, frozen=True):
    """A node's spec."""

    unschedulable: bool | None = None
    taints: tuple[Taint, ...] | None = None


class Status(Struct, frozen=True):
    """A node's status."""

    capacity: dict[str, str] | None = None
    allocatable: dict[str, str] | None = None
    conditions: tuple[Condition, ...] | None = None


class RawNode(Struct, frozen=True):
    """A node."""

    metadata: NodeMetadata
    spec: Spec = field(default_factory=Spec)
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

    def as_json(self) -> dict[str, Any]:
        """What placement and marks ask of it, as the API would write it."""
        conditions = [{"type": one.type, "status": one.status} for one in self.status.conditions or ()]
        taints = [{"key": one.key, "value": one.value, "effect": one.effect} for one in self.spec.taints or ()]
        return {
            "metadata": {"name": self.metadata.name, "labels": self.metadata.labels or {}},
            "spec": {"unschedulable": bool(self.spec.unschedulable), "taints": taints},
            "status": {"allocatable": self.status.allocatable or {}, "conditions": conditions},
        }
