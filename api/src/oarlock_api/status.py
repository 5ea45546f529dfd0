"""status: what the operator says about a job. Only the operator writes it.

Nothing here has a default in the CRD: what stands in a status was written, never filled in.
"""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from oarlock_api.group import StatusGroup
from oarlock_api.history import (
    Attempt,
    AvoidedNode,
    CordonedNode,
    LastFault,
    RecoveryStatus,
    RestartCounts,
    Round,
    Strike,
)
from oarlock_api.primitives import Text, Time
from oarlock_api.progress import (
    MAX_CURVE,
    CurvePoint,
    LatestCheckpoint,
    OutputStatus,
    Progress,
    ShortText,
    StateInMemory,
)
from oarlock_api.requests import EvictionReadiness, RequestStatus
from oarlock_api.rules import ListMap

MAX_STANDBY = 128
"""Pods that may stand by: all spares, and as many that were left out or came back."""


class Phase(StrEnum):
    """A summary of the conditions for people and tools; it may gain values."""

    PENDING = "Pending"
    QUEUED = "Queued"
    STARTING = "Starting"
    RUNNING = "Running"
    RECOVERING = "Recovering"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class ConditionType(StrEnum):
    """The conditions; all are present from the first write on."""

    ACCEPTED = "Accepted"
    SUSPENDED = "Suspended"
    STORAGE_READY = "StorageReady"
    SCHEDULED = "Scheduled"
    RUNNING = "Running"
    RECOVERING = "Recovering"
    DEGRADED = "Degraded"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    FINISHED = "Finished"
    READY = "Ready"
    """This and the next two are what tools ask that know nothing of the kind: Helm 4, Flux (kstatus)."""
    RECONCILING = "Reconciling"
    STALLED = "Stalled"


class ConditionStatus(StrEnum):
    """Whether a condition holds."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Condition(StatusGroup):
    """One observation of the job's state, as everywhere in Kubernetes."""

    type: ShortText = Field(description="Accepted, Suspended, StorageReady, ..., Stalled.")
    status: ConditionStatus = Field(description="True, False or Unknown.")
    reason: ShortText = Field(description="Why, in one CamelCase word.")
    message: Annotated[str, Field(max_length=8192)] = Field(default="", description="Why, in a sentence.")
    last_transition_time: Time = Field(description="When the status changed last.")
    observed_generation: int | None = Field(default=None, description="Generation of the job that it is about.")


class Summary(StatusGroup):
    """Strings for kubectl's columns."""

    nodes: ShortText | None = Field(
        default=None, description="Ready and wanted nodes, such as 4/4; 4/4+1 with a spare."
    )
    step: ShortText | None = Field(default=None, description="Done and all steps, such as 120/300.")
    eta: ShortText | None = Field(default=None, description="Time until the last step, such as 5h20m.")
    last_fault: Text | None = Field(default=None, description="The last fault in a few words.")


class ResolvedPlan(StatusGroup):
    """What the planner chose."""

    effective_batch: int | None = Field(default=None, description="Samples per optimizer step over all ranks.")
    zero_stage: int | None = Field(default=None, description="ZeRO stage; 0 = none.")
    memory_bytes: int | None = Field(default=None, description="Estimated peak per GPU in bytes.")


class Resolved(StatusGroup):
    """What was left to Oarlock, as decided at the first start: an upgrade of the operator changes no running job."""

    image: Text | None = Field(default=None, description="Image of the trainer's container.")
    gang: ShortText | None = Field(default=None, description="Gang system.")
    scheduler_name: ShortText | None = Field(default=None, description="Scheduler of the pods.")
    plan: ResolvedPlan | None = Field(default=None, description="What the planner chose.")


class Ranks(StatusGroup):
    """Pods of the current attempt's round; what stands by is no part of it."""

    desired: int = Field(default=0, description="Wanted.")
    created: int = Field(default=0, description="Created.")
    ready: int = Field(default=0, description="Ready.")
    succeeded: int = Field(default=0, description="Ended with 0.")
    failed: int = Field(default=0, description="Ended otherwise.")
    terminating: int = Field(default=0, description="Being deleted, of whatever attempt.")
    spares: int = Field(default=0, description="Pods that stand by, and are ready.")


class TrainingJobStatus(StatusGroup):
    """What the operator says about a job."""

    observed_generation: int | None = Field(default=None, description="Generation of the job that this is about.")
    phase: ShortText | None = Field(
        default=None,
        description="Summary: Pending, Queued, Starting, Running, Recovering, Suspended, Succeeded or Failed; may gain "
        "values. The conditions say more.",
    )
    reason: ShortText | None = Field(default=None, description="Why, in one CamelCase word.")
    message: Annotated[str, Field(max_length=8192)] | None = Field(default=None, description="Why, in a sentence.")
    succeeded: int = Field(default=0, description="1 once the job has succeeded, else 0.")
    failed: int = Field(default=0, description="1 once the job has failed, else 0.")
    attempt: int = Field(default=0, description="Number of the current attempt; it never falls.")
    round: int = Field(
        default=1, description="Number of the current attempt's current round: a start of all its ranks in living pods."
    )
    restart_count: int = Field(
        default=0,
        description="Attempts that something broken or moved made necessary. Not rounds: ranks that started anew in living "
        "pods, nor pods that were made anew alone.",
    )
    restarts: RestartCounts = Field(default=RestartCounts(), description="Restarts within the window, by budget.")
    summary: Summary = Field(default=Summary(), description="Strings for kubectl's columns.")
    resolved: Resolved | None = Field(default=None, description="What was left to Oarlock, as decided at the start.")
    ranks: Ranks = Field(default=Ranks(), description="Pods of the current attempt.")
    standby: Annotated[tuple[int, ...], Field(max_length=MAX_STANDBY)] = Field(
        default=(), description="Pods, by index, that are none of the current round's."
    )
    recovery: RecoveryStatus = Field(default=RecoveryStatus(), description="The recovery that is under way.")
    progress: Progress | None = Field(default=None, description="How far training is.")
    curve: Annotated[tuple[CurvePoint, ...], Field(max_length=MAX_CURVE)] = Field(
        default=(), description="The whole run in at most 64 points; metrics.jsonl in the output has every step."
    )
    latest_checkpoint: LatestCheckpoint | None = Field(default=None, description="The newest valid checkpoint.")
    memory: StateInMemory | None = Field(
        default=None, description="The newest state that all nodes have in memory, where recovery.memory keeps one."
    )
    output: OutputStatus | None = Field(default=None, description="What the job made; set before Succeeded.")
    request: RequestStatus | None = Field(
        default=None, description="What was asked of the job last, and what came of it."
    )
    eviction_readiness: EvictionReadiness | None = Field(
        default=None, description="Whether the grace period is long enough to save, as it was measured last."
    )
    last_fault: LastFault | None = Field(default=None, description="The root cause of the last fault.")
    attempts: Annotated[tuple[Attempt, ...], Field(max_length=10), ListMap("number")] = Field(
        default=(), description="The last ten attempts; the last move for a slow rank stays among them."
    )
    rounds: Annotated[tuple[Round, ...], Field(max_length=10)] = Field(
        default=(), description="The last ten rounds that ended while their attempt went on, or was to go on."
    )
    avoided_nodes: Annotated[tuple[AvoidedNode, ...], Field(max_length=64), ListMap("name")] = Field(
        default=(), description="Nodes that the job's pods keep off."
    )
    strikes: Annotated[tuple[Strike, ...], Field(max_length=32), ListMap("gpu_uuid")] = Field(
        default=(), description="GPUs that have already restarted the job."
    )
    cordoned_nodes: Annotated[tuple[CordonedNode, ...], Field(max_length=64), ListMap("name")] = Field(
        default=(), description="Nodes that were cordoned for this job."
    )
    inactive_seconds: int = Field(
        default=0,
        description="Seconds since startTime that do not count towards activeDeadlineSeconds: suspended or queued.",
    )
    gpu_seconds: int = Field(
        default=0,
        description="Seconds of GPUs that the job has held; of a gang that trains, counted with each write of progress.",
    )
    wasted_gpu_seconds: int = Field(
        default=0, description="Those of them that made no progress: recovery, and steps that were done again."
    )
    start_time: Time | None = Field(default=None, description="When the job was first started.")
    completion_time: Time | None = Field(
        default=None, description="When the job ended, well or not, and all its pods had stopped."
    )
    last_reconcile_time: Time | None = Field(
        default=None, description="When this status was written; it differs with every write."
    )
    conditions: Annotated[tuple[Condition, ...], Field(max_length=16), ListMap("type")] = Field(
        default=(), description="The job's state; wait for Finished to see its end, good or bad."
    )
