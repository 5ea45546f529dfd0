"""What one pass wants: a status, actions, Events, and when to look again.

The status is written first, so that intent stands in the API before anything is done; then the Events that tell of it;
then the actions, in their order. Each action can be repeated, and names the very object (uid) that it is about.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from oarlock_api.history import FaultGPU
from oarlock_api.status import TrainingJobStatus
from oarlock_operator.model.observed_nodes import NodeStrike


@dataclass(frozen=True, slots=True)
class CreateService:
    """Create the headless Service, selecting one attempt."""

    manifest: dict[str, Any]


@dataclass(frozen=True, slots=True)
class SelectAttempt:
    """Point the Service at another attempt."""

    name: str
    uid: str
    selector: dict[str, str]


@dataclass(frozen=True, slots=True)
class CreateGroup:
    """Create the object that makes the pods of an attempt a gang; its apiVersion says of which system."""

    manifest: dict[str, Any]


@dataclass(frozen=True, slots=True)
class DeleteGroup:
    """Delete the group of an attempt that is over. `api`: group and version of its system."""

    name: str
    uid: str
    api: str


@dataclass(frozen=True, slots=True)
class CreatePods:
    """Create pods, in parallel. `beside`: what they need and is never read, because its name says all of it.

    `optional`: the gang does without them, so whatever keeps the API server from taking them holds nobody up.
    """

    manifests: tuple[dict[str, Any], ...]
    beside: tuple[dict[str, Any], ...] = field(default=(), repr=False)
    optional: bool = False


@dataclass(frozen=True, slots=True)
class DeletePods:
    """Delete pods, in parallel, each by name and uid. No grace period named: the pod's own."""

    pods: tuple[tuple[str, str], ...]
    grace_seconds: int | None = None


@dataclass(frozen=True, slots=True)
class DeleteJob:
    """Delete the finished job itself; what it owns goes with it."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class CordonNode:
    """Take this very node (`uid`) from the scheduler, once, and write on it why; one that is cordoned is left as it is.

    `time`: when it was decided, which tells this cordon from any other; `at`: the time of this pass.
    """

    node: str
    uid: str
    attempt: int
    reason: str
    time: datetime
    at: datetime
    gpu: FaultGPU | None = None


@dataclass(frozen=True, slots=True)
class NoteStrike:
    """Write on a node that one of its GPUs has restarted a gang; once for each time."""

    node: str
    strike: NodeStrike


@dataclass(frozen=True, slots=True)
class LatchBreaker:
    """Stop cordoning altogether, until a person has looked."""

    why: str


Action = (
    CreateService
    | SelectAttempt
    | CreateGroup
    | DeleteGroup
    | CreatePods
    | DeletePods
    | DeleteJob
    | CordonNode
    | NoteStrike
    | LatchBreaker
)


class EventType(StrEnum):
    """Kubernetes' two kinds of Events."""

    NORMAL = "Normal"
    WARNING = "Warning"


@dataclass(frozen=True, slots=True)
class Event:
    """One line of `kubectl describe`."""

    type: EventType
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Plan:
    """The outcome of `decide`. `status` None: nothing to write. `again_seconds` None: only an event or the resync."""

    status: TrainingJobStatus | None = None
    actions: tuple[Action, ...] = ()
    events: tuple[Event, ...] = ()
    again_seconds: float | None = None
    minor: bool = False
    """The status differs in counts of pods only: worth a write now and then."""


class Look(StrEnum):
    """What is looked at only where a decision hangs on it: all nodes are read for it."""

    POOL = "pool"
    """The nodes that may be cordoned, and those that are."""
    SPARES = "spares"
    """Whether there is room for a whole gang elsewhere."""


@dataclass(frozen=True, slots=True)
class Need:
    """The other outcome of `decide`: a look that is to be taken first, and then decided once more."""

    look: Look
    leaving: frozenset[str] = frozenset()
    """Nodes that the gang would leave for spares, besides those that would not take it again."""
    otherwise: Plan | None = None
    """The plan that holds where the look is not taken, or finds nothing. None: there is none, without the look."""


def plan_of(outcome: Plan | Need) -> Plan:
    """The plan of an outcome whose look is not taken, or was. Raises LookupError where nothing holds without it."""
    plan = outcome.otherwise if isinstance(outcome, Need) else outcome
    if plan is None:
        raise LookupError("nothing is decided without a look at the pool")
    return plan
