"""spec.scheduling: who places the gang, and where."""

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field, StrictInt

from oarlock_api.group import Group
from oarlock_api.primitives import LabelValue, ObjectName, QualifiedName, Unstructured
from oarlock_api.rules import ListSet, Rule, at_most_one, only_when


class Gang(StrEnum):
    """The system that places all pods of a gang at once."""

    AUTO = "Auto"
    NONE = "None"
    KUEUE = "Kueue"
    VOLCANO = "Volcano"
    COSCHEDULING = "Coscheduling"
    KAI = "KAI"
    NATIVE = "Native"


class Topology(Group):
    """How near the nodes shall be to each other."""

    admission: ClassVar[tuple[Rule, ...]] = (
        at_most_one(
            "required_key",
            "preferred_keys",
            message="set only one of topology.requiredKey and topology.preferredKeys",
        ),
    )

    required_key: QualifiedName | None = Field(
        default=None,
        description="Node label; all pods run within one value of it, or not at all. With Volcano, a key without a "
        "slash names a tier of its HyperNodes.",
    )
    preferred_keys: Annotated[tuple[QualifiedName, ...], Field(min_length=1, max_length=8), ListSet()] | None = Field(
        default=None,
        description="Node labels, the most important first; pods are placed together where that is possible.",
    )

    @property
    def keys(self) -> tuple[str, ...]:
        """What is asked for: the required key alone, or the preferred ones."""
        return (self.required_key,) if self.required_key else self.preferred_keys or ()


class Scheduling(Group):
    """Placement of the gang."""

    admission: ClassVar[tuple[Rule, ...]] = (
        only_when(
            "queue",
            setting="gang",
            allowed=("Auto", "Kueue", "Volcano", "KAI"),
            message="scheduling.queue needs a gang system with queues: set scheduling.gang to Kueue, Volcano, KAI or "
            "Auto (= Kueue), or remove queue",
        ),
        Rule(
            cel="self.gang != 'Kueue' || has(self.queue)",
            message="scheduling.gang: Kueue needs scheduling.queue, the name of a LocalQueue of the job's namespace",
            holds=lambda scheduling: scheduling.gang != Gang.KUEUE or scheduling.queue is not None,
        ),
        Rule(
            cel="self.gang != 'KAI' || has(self.queue)",
            message="scheduling.gang: KAI needs scheduling.queue: KAI places nothing that is in no queue",
            holds=lambda scheduling: scheduling.gang != Gang.KAI or scheduling.queue is not None,
        ),
        Rule(
            cel="self.gang != 'Coscheduling' || has(self.schedulerName)",
            message="scheduling.gang: Coscheduling needs scheduling.schedulerName, the scheduler profile that has the "
            "plugin Coscheduling",
            holds=lambda scheduling: scheduling.gang != Gang.COSCHEDULING or scheduling.scheduler_name is not None,
        ),
        Rule(
            cel="!has(self.queuePriorityClassName) || has(self.queue)",
            message="scheduling.queuePriorityClassName is a priority within a queue: set scheduling.queue as well, or "
            "use priorityClassName",
            holds=lambda scheduling: scheduling.queue_priority_class_name is None or scheduling.queue is not None,
        ),
    )

    gang: Gang = Field(
        default=Gang.AUTO,
        description="Gang system. Auto = Kueue if a queue is set, else Volcano, Coscheduling (with a schedulerName of "
        "its own) or Native where the cluster has it, else None (placed pod by pod, and taken back as a whole after "
        "placementTimeoutSeconds).",
    )
    queue: ObjectName | None = Field(
        default=None, description="Queue of the gang system; with Kueue a LocalQueue of the job's namespace."
    )
    queue_priority_class_name: ObjectName | None = Field(
        default=None,
        description="Priority within the queue: with Kueue a WorkloadPriorityClass, else a PriorityClass. Absent = "
        "priorityClassName.",
    )
    priority_class_name: ObjectName | None = Field(default=None, description="PriorityClass of the pods.")
    scheduler_name: ObjectName | None = Field(
        default=None, description="Scheduler of the pods; absent = the gang system's, else the cluster's default."
    )
    node_selector: Annotated[dict[Annotated[str, Field(max_length=316)], LabelValue], Field(max_length=32)] = Field(
        default={}, description="Labels that a node must have."
    )
    tolerations: Annotated[tuple[Unstructured, ...], Field(max_length=64)] = Field(
        default=(), description="Tolerations of the pods, as in a pod."
    )
    affinity: Annotated[Unstructured, Field(max_length=3)] | None = Field(
        default=None, description="Affinity of the pods, as in a pod; avoided nodes are ANDed into every node term."
    )
    topology: Topology = Field(default=Topology(), description="How near the nodes shall be to each other.")
    placement_timeout_seconds: Annotated[StrictInt, Field(ge=10, le=31_536_000)] = Field(
        default=600,
        description="Seconds after which a gang that is not wholly scheduled is taken back and retried. Time in a "
        "queue does not count.",
    )
