"""What a gang system adds to the pods of an attempt, the same to each of them, and the object that makes them a gang."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from oarlock_api.scheduling import Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouping:
    """One attempt's membership. `group` is None where the system makes its object itself, or needs none.

    `near` is what of the job's topology the pods' own affinity has to see to.
    """

    group: dict[str, Any] | None = None
    scheduler_name: str | None = None
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    scheduling_group: dict[str, str] | None = None
    near: Topology = field(default_factory=Topology)
