"""spec.preflight and spec.recovery: what is checked before the start, and what happens when something breaks."""

from enum import StrEnum
from typing import Annotated, ClassVar, Literal

from pydantic import Field, StrictBool, StrictInt

from oarlock_api.contract.exit_codes import FailureClass
from oarlock_api.contract.health import GpuVerdict
from oarlock_api.contract.rounds import InPlace
from oarlock_api.group import Group
from oarlock_api.primitives import EverySteps, Label, ObjectName, Seconds, Word
from oarlock_api.rules import ListMap, ListSet, Rule, at_least_one, ordered

RecoverableClass = Literal[
    FailureClass.GPU,
    FailureClass.PEER_LOST,
    FailureClass.HANG,
    FailureClass.STORAGE,
    FailureClass.CONFIGURATION,
    FailureClass.PREFLIGHT,
    FailureClass.APPLICATION,
]
"""The classes that a rule may name: being fenced and leaving on request are no faults."""

RuledVerdict = Literal[GpuVerdict.HOLD, GpuVerdict.RESTART_PROCESS, GpuVerdict.REPLACE_NODE]
"""What a GPU's fault calls for; Hold is a warning of one that works."""

Restarts = Annotated[StrictInt, Field(ge=0, le=1_000_000)]


class CordonPolicy(StrEnum):
    """Whether a node with a broken GPU is cordoned."""

    AUTO = "Auto"
    NEVER = "Never"
    DRY_RUN = "DryRun"


class ForceDelete(StrEnum):
    """When a pod that does not end is deleted by force."""

    WHEN_UNREACHABLE = "WhenUnreachable"
    NEVER = "Never"


class RecoveryAction(StrEnum):
    """What a rule does. None of them cordons."""

    IGNORE = "Ignore"
    RESTART_PROCESS = "RestartProcess"
    AVOID_NODE = "AvoidNode"
    FAIL = "Fail"


class SlowRank(StrEnum):
    """What follows from a rank that is slower than the others, for long."""

    REPORT = "Report"
    MIGRATE = "Migrate"


class Preflight(Group):
    """Checks in every pod before a GPU is busy."""

    storage: StrictBool = Field(default=True, description="The output is writable from every pod and has room.")
    clock: StrictBool = Field(default=True, description="The nodes' clocks agree.")
    gpus: StrictBool = Field(default=True, description="The expected number of GPUs is there, healthy and idle.")
    collective: StrictBool = Field(
        default=True,
        description="Gangs of several nodes meet, and add up some numbers together: who is cut off is named, and so are the "
        "network that NCCL takes and its speed; a second or two.",
    )
    min_bus_bandwidth: Annotated[StrictInt, Field(ge=0, le=100_000)] | None = Field(
        default=None,
        description="GB/s of the gang's all-reduce, counted as bus bandwidth (nccl-tests' busbw), below which the job says "
        "SlowNetwork; it trains all the same. By default 10 where all pods have InfiniBand, else none; 0 = none.",
    )
    timeout_seconds: Annotated[StrictInt, Field(ge=1, le=86_400)] = Field(
        default=300, description="Seconds that the checks may take."
    )


class RecoveryMatch(Group):
    """Which faults a rule is about: all that is set must fit."""

    admission: ClassVar[tuple[Rule, ...]] = (
        at_least_one(
            "xids",
            "classes",
            "exit_codes",
            "node_names",
            "verdict",
            "probes",
            message="a recovery rule without condition would match every fault: set xids, classes, exitCodes, nodeNames, "
            "verdict or probes",
        ),
    )

    xids: (
        Annotated[
            tuple[Annotated[StrictInt, Field(ge=0, le=65535)], ...], Field(min_length=1, max_length=64), ListSet()
        ]
        | None
    ) = Field(default=None, description="XID codes of the NVIDIA driver.")
    classes: Annotated[tuple[RecoverableClass, ...], Field(min_length=1, max_length=8), ListSet()] | None = Field(
        default=None, description="Classes of faults."
    )
    exit_codes: (
        Annotated[tuple[Annotated[StrictInt, Field(ge=1, le=255)], ...], Field(min_length=1, max_length=64), ListSet()]
        | None
    ) = Field(default=None, description="Exit codes of the trainer's container.")
    node_names: Annotated[tuple[ObjectName, ...], Field(min_length=1, max_length=64), ListSet()] | None = Field(
        default=None, description="Nodes on which the fault happened."
    )
    verdict: RuledVerdict | None = Field(
        default=None,
        description="What the GPU's fault calls for. Hold = a GPU warns and works on: no rule without it is about warnings.",
    )
    probes: Annotated[tuple[Word, ...], Field(min_length=1, max_length=32), ListSet()] | None = Field(
        default=None, description="Probes of GPUs that told of it, such as thermalSlowdown or powerBrake."
    )


class RecoveryRule(Group):
    """An exception from the table of faults."""

    name: Label = Field(description="Name of this rule; it is shown where the rule was applied.")
    when: RecoveryMatch = Field(
        description="Which faults it is about: all conditions that are set must fit, any value of each."
    )
    action: RecoveryAction = Field(
        description="Ignore = start again at no cost to any budget, of a warning: go on; RestartProcess = restart without "
        "blaming the node, AvoidNode = restart elsewhere, Fail = end the job."
    )


class MemoryState(Group):
    """The newest state of the training in the nodes' memory, beside the checkpoints in the storage."""

    every_steps: EverySteps = Field(
        default="0",
        description="Optimizer steps from one copy of each rank's state into /dev/shm to the next; ranks that start anew in "
        "the same pods go on from it. Auto = as often as it costs no more than a hundredth of the time, 0 = never. It takes "
        "twice the state of a node's ranks, and as much again where lost pods are made anew one by one; with spec.elastic "
        "that of all nodes beside it (`oarlock-trainer plan` says how much). Where that is not there it is said, and nothing "
        "is kept. Only with inPlace: Auto.",
    )


class Recovery(Group):
    """What happens when something breaks. May be changed at any time."""

    admission: ClassVar[tuple[Rule, ...]] = (
        ordered(
            "backoff_seconds",
            "max_backoff_seconds",
            message="recovery.backoffSeconds is above recovery.maxBackoffSeconds; lower it or raise the maximum",
        ),
    )
    for_pods = ("in_place", "standby_seconds", "memory", "hang_seconds", "drill_every_steps")

    in_place: InPlace = Field(
        default=InPlace.NEVER,
        description="Auto = ranks that crash, hang or need a new process start anew inside their living pods (a round), and "
        "a lost pod is made anew by itself while the others stand by; Never = each fault makes a new attempt. A change holds "
        "from the next attempt on.",
    )
    standby_seconds: Annotated[StrictInt, Field(ge=10, le=86_400)] = Field(
        default=300,
        description="Seconds for which the pods that are left wait for one that is replaced; then all leave, and a new "
        "attempt follows. Only with inPlace: Auto.",
    )
    memory: MemoryState = Field(
        default=MemoryState(), description="The state in the nodes' memory, which ranks that start anew go on from."
    )

    max_application_restarts: Restarts = Field(
        default=3, description="Restarts after failures of the program, within windowSeconds and without progress."
    )
    max_infrastructure_restarts: Restarts = Field(
        default=20, description="Restarts after faults of GPUs, nodes and storage, within windowSeconds."
    )
    max_restarts_without_progress: Restarts = Field(
        default=3,
        description="Restarts in a row without progress (a newer checkpoint, or a later step in memory) after which the job "
        "fails (NoProgress).",
    )
    window_seconds: Seconds = Field(
        default=86400, description="Seconds after which a restart is forgotten and a node is no longer avoided."
    )
    backoff_seconds: Seconds = Field(
        default=10,
        description="Seconds before the second restart in a row after failures of the program; doubles with each one. "
        "The first restart begins at once.",
    )
    max_backoff_seconds: Seconds = Field(default=300, description="Longest backoff in seconds.")
    hang_seconds: Seconds = Field(
        default=0,
        description="Seconds without a step after which a run counts as hung; 0 = learned from its own steps.",
    )
    drill_every_steps: Annotated[StrictInt, Field(ge=1, le=1_000_000_000)] | None = Field(
        default=None,
        description="Optimizer steps between drills: training stands still for a checkpoint as at an eviction, and goes on; "
        "status.evictionReadiness has the seconds. None by default.",
    )
    fault_grace_period_seconds: Seconds = Field(
        default=5, description="Grace period in seconds when a gang is torn down after a fault."
    )
    teardown_seconds: Annotated[StrictInt, Field(ge=1, le=86_400)] = Field(
        default=30, description="Seconds beyond the grace period after which a pod that has not stopped counts as lost."
    )
    cordon: CordonPolicy = Field(
        default=CordonPolicy.AUTO,
        description="Auto = cordon a node with a broken GPU as far as the operator's brakes allow, DryRun = only "
        "say so.",
    )
    force_delete: ForceDelete = Field(
        default=ForceDelete.WHEN_UNREACHABLE,
        description="WhenUnreachable = delete a pod by force where its node is unreachable or gone.",
    )
    slow_rank: SlowRank = Field(
        default=SlowRank.REPORT,
        description="Of a rank that is slower than the others for long: Report = say so, Migrate = also save and leave its "
        "node, once as many free nodes surely take the gang, and once a day at most. No node is cordoned for it.",
    )
    rules: Annotated[tuple[RecoveryRule, ...], Field(max_length=32), ListMap("name")] = Field(
        default=(), description="The first that fits decides."
    )
