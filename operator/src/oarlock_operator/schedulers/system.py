"""A gang system as data: what it serves, what it needs, and the pure function that makes an attempt a gang of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from oarlock_api.contract.names import Label, group_name
from oarlock_api.scheduling import Scheduling
from oarlock_api.spec import TrainingJobSpec
from oarlock_operator.manifests.grouping import Grouping
from oarlock_operator.manifests.ownership import job_labels, owner_reference
from oarlock_operator.model.observation import GangSystems, Job


@dataclass(frozen=True, slots=True, kw_only=True)
class GangRequest:
    """The attempt that is to become a gang, and what the cluster serves.

    `size`: its pods with its spares. spec.nodes of them are needed together; the others may come later, or not at all.
    """

    job: Job
    spec: TrainingJobSpec
    attempt: int
    size: int
    systems: GangSystems

    @property
    def name(self) -> str:
        """Name of the attempt's group."""
        return group_name(self.job.name, self.job.uid, self.attempt)

    def group(self, api: str, spec: dict[str, Any]) -> dict[str, Any]:
        """The object that makes the gang, a PodGroup in every system: it goes with the job, if not before."""
        return {
            "apiVersion": api,
            "kind": "PodGroup",
            "metadata": {
                "name": self.name,
                "namespace": self.job.namespace,
                "labels": {**job_labels(self.job), Label.ATTEMPT.value: str(self.attempt)},
                "ownerReferences": [owner_reference(self.job)],
            },
            "spec": spec,
        }


def no_message(_: dict[str, Any]) -> str:
    """Of a system that has no queue, no group ever waits in one."""
    return ""


def no_time(_: dict[str, Any]) -> None:
    """Of a system whose groups do not tell when they were let in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """One gang system. `apis`: groups and versions that are understood, the best first; none: it is always there.

    `resource` tells by its presence that the system is. `scheduler`: its scheduler's usual name. `waits` gives the words
    of a group that is held in a queue, empty for one that is not; `let_in` since when it is in. `ignored`: what it means
    where the cluster did not take the pods for a gang, though it was asked to. `unmarked`: how it preempts, where pods do
    not tell that it did.
    """

    grouping: Callable[[GangRequest], Grouping]
    apis: tuple[str, ...] = ()
    resource: str = "podgroups"
    makes_groups: bool = True
    """Whether the operator makes the group itself, and so needs the right to."""
    scheduler: str | None = None
    queues: bool = False
    replaces_pods: bool = False
    """Whether a gang that it has placed takes a single new pod in: then a lost one is made anew by itself."""
    surges: bool = False
    """Whether one may come while the pod before it is still there: nothing counts the gang's pods, or holds their room."""
    counts_spares: bool = False
    """Whether it lets a group in only once all of its pods are there, the spares too."""
    after_failed: bool = False
    """Whether it takes one in only for a pod that has the phase Failed, and deletes one that comes before as too many."""
    waits: Callable[[dict[str, Any]], str] = no_message
    let_in: Callable[[dict[str, Any]], datetime | None] = no_time
    ignored: str = ""
    unmarked: str = ""


def priority_in_queue(scheduling: Scheduling) -> dict[str, str]:
    """The priority of a PodGroup, absent where none is asked for."""
    name = scheduling.queue_priority_class_name or scheduling.priority_class_name
    return {"priorityClassName": name} if name else {}
