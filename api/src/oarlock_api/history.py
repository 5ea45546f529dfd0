"""The part of the status that survives an operator's restart: attempts, faults, and what recovery must remember."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from oarlock_api.contract.rounds import MAX_LOST
from oarlock_api.group import StatusGroup
from oarlock_api.primitives import Text, Time
from oarlock_api.progress import ShortText

Names = Annotated[tuple[ShortText, ...], Field(max_length=32)]
Milliseconds = Annotated[int, Field(ge=0)] | None


class RecoveryStage(StrEnum):
    """What a job is busy with. The first eight are passed in this order; they sum up to fault -> training again."""

    DETECT = "Detect"
    DECIDE = "Decide"
    DRAIN = "Drain"
    CORDON = "Cordon"
    QUEUE = "Queue"
    SCHEDULE = "Schedule"
    START = "Start"
    FIRST_STEP = "FirstStep"
    REPLACE = "Replace"
    """Single pods of the attempt are made anew, and the others stand by."""
    STOPPING = "Stopping"
    SUSPENDING = "Suspending"
    SUSPENDED = "Suspended"


class Rung(StrEnum):
    """How much a recovery made anew, the least first."""

    RESTART_RANKS = "RestartRanks"
    """The ranks, inside their living pods."""
    TAKE_SPARE = "TakeSpare"
    """The ranks; a spare takes the place of a lost pod."""
    SHRINK = "Shrink"
    """The ranks; the gang goes on with fewer nodes."""
    GROW = "Grow"
    """The ranks; a gang of fewer nodes takes more."""
    REPLACE_POD = "ReplacePod"
    """Single pods, and the ranks inside the others."""
    ATTEMPT = "Attempt"
    """All pods."""


class RestartCounts(StatusGroup):
    """Restarts within the window, by budget."""

    application: int = Field(default=0, description="After failures of the program.")
    infrastructure: int = Field(default=0, description="After faults of GPUs, nodes and storage.")
    without_progress: int = Field(default=0, description="In a row, without progress.")
    progress_step: int | None = Field(
        default=None,
        description="The furthest step that has counted as progress, at first the one that training began with: a newer "
        "checkpoint, or a state in memory, is progress beyond it alone.",
    )
    voluntary: int = Field(default=0, description="Evictions, preemptions and requests; they cost no budget.")
    evictions: int = Field(default=0, description="Of the voluntary ones, evictions since the newest checkpoint.")
    window_start_time: Time | None = Field(default=None, description="When counting began.")


class Replacing(StatusGroup):
    """A pod that is made anew while the others of its attempt stand by, or train without it."""

    rank: int = Field(description="Index of the pod.")
    incarnation: int = Field(description="Number of the new pod within its attempt; the first pods have 1.")
    node_name: ShortText | None = Field(default=None, description="Node of the pod that was lost.")
    reason: ShortText | None = Field(default=None, description="Why, as attempts have it.")
    round: int = Field(default=1, description="The attempt's round by then, as far as it is known.")
    time: Time | None = Field(default=None, description="When it was decided.")
    ended: bool | None = Field(default=None, description="Whether all pods of the rank before it were seen to end.")


class Surging(StatusGroup):
    """The next pod of one that was asked to go, made while that one still trains."""

    rank: int = Field(description="Index of the pod.")
    incarnation: int = Field(description="Number of the new pod within its attempt.")
    hold_until_time: Time = Field(
        description="Until when the gang trains on with the old pod, if the new one is not ready."
    )
    round: int = Field(default=1, description="The attempt's round by then, as far as it is known.")


class RecoveryStatus(StatusGroup):
    """What the job is busy with, other than training."""

    stage: ShortText | None = Field(
        default=None,
        description="Detect, Decide, Drain, Cordon, Queue, Schedule, Start, FirstStep; or Replace, Stopping, Suspending, "
        "Suspended. Absent = training, or ended.",
    )
    stage_start_time: Time | None = Field(default=None, description="When the stage began.")
    not_before_time: Time | None = Field(default=None, description="No pod is created before it (backoff).")
    replacing: Annotated[tuple[Replacing, ...], Field(max_length=MAX_LOST)] = Field(
        default=(), description="Pods that are made anew while the others stand by, or train without them."
    )
    surging: Annotated[tuple[Surging, ...], Field(max_length=MAX_LOST)] = Field(
        default=(), description="Pods that are made while those whose place they will take still train."
    )


class FaultGPU(StatusGroup):
    """The GPU that a fault was on."""

    index: int | None = Field(default=None, description="Index on its node.")
    uuid: ShortText | None = Field(default=None, description="UUID.")
    serial: ShortText | None = Field(default=None, description="Serial number.")


class LastFault(StatusGroup):
    """The root cause of the last fault."""

    time: Time = Field(description="When it was detected.")
    fault_class: ShortText = Field(
        alias="class",
        description="GPU, PeerLost, Hang, Storage, Configuration, Preflight, Application or NodeLost.",
    )
    node_name: ShortText | None = Field(default=None, description="Node.")
    rank: int | None = Field(default=None, description="Index of the pod.")
    gpu: FaultGPU | None = Field(default=None, description="GPU.")
    xid: int | None = Field(default=None, description="XID code of the NVIDIA driver.")
    verdict: ShortText | None = Field(default=None, description="Ignore, Hold, RestartProcess or ReplaceNode.")
    reason: ShortText | None = Field(
        default=None, description="What it is called: as the reason of the attempt that follows it."
    )
    action: Text | None = Field(default=None, description="What was done about it.")
    evidence: Annotated[tuple[Text, ...], Field(max_length=16)] = Field(
        default=(), description="What the verdict rests on."
    )
    victims: int | None = Field(default=None, description="Pods that only lost this peer.")


class AttemptFault(StatusGroup):
    """Of the fault that ended an attempt, what is kept when the next one has taken its place in status.lastFault."""

    time: Time | None = Field(default=None, description="When it was detected.")
    fault_class: ShortText | None = Field(default=None, alias="class", description="As in status.lastFault.")
    node_name: ShortText | None = Field(default=None, description="Node.")
    rank: int | None = Field(default=None, description="Index of the pod.")
    gpu_index: int | None = Field(default=None, description="Index of the GPU on its node.")
    xid: int | None = Field(default=None, description="XID code of the NVIDIA driver.")
    verdict: ShortText | None = Field(default=None, description="As in status.lastFault.")


class StageMilliseconds(StatusGroup):
    """How long each stage took, in milliseconds."""

    detect: Milliseconds = Field(default=None, description="Fault -> known to the operator.")
    decide: Milliseconds = Field(default=None, description="Known -> the new attempt is written down.")
    drain: Milliseconds = Field(default=None, description="Until the old pods have stopped.")
    cordon: Milliseconds = Field(
        default=None, description="Cordoning, where it has a time of its own; now a part of drain."
    )
    queue: Milliseconds = Field(default=None, description="In the queue of the gang system.")
    schedule: Milliseconds = Field(default=None, description="Until every pod has a node.")
    start: Milliseconds = Field(default=None, description="Until every pod has started.")
    first_step: Milliseconds = Field(default=None, description="Until the first optimizer step is done.")


class Attempt(StatusGroup):
    """One gang."""

    number: int = Field(description="1 for the first.")
    incarnation: int = Field(
        default=1,
        description="The highest number that a pod of it was given; above 1 once one was made anew by itself.",
    )
    surges: bool | None = Field(
        default=None,
        description="True = rank 0's agent has said that it knows surge pods; one of an earlier release does not.",
    )
    start_time: Time | None = Field(default=None, description="When it was decided.")
    created_time: Time | None = Field(default=None, description="When all pods had been created.")
    end_time: Time | None = Field(default=None, description="When its last pod had stopped.")
    reason: ShortText | None = Field(default=None, description="Why it was started; absent for the first.")
    end_reason: ShortText | None = Field(
        default=None,
        description="Why it ended, or is to end: as the next one's reason, or the job's. Absent while it goes on.",
    )
    fault: AttemptFault | None = Field(
        default=None, description="The root cause of the fault that ended it, if one did."
    )
    not_in_place: Text | None = Field(
        default=None,
        description="Why that fault was not mended within the attempt, though recovery.inPlace is Auto.",
    )
    succeeded_ranks: (
        Annotated[str, Field(max_length=8192, pattern=r"^\d{1,4}(-\d{1,4})?(,\d{1,4}(-\d{1,4})?)*$")] | None
    ) = Field(
        default=None,
        description="Ranks whose pods have ended with 0, such as 0-3,8; they are not missed when their pods go.",
    )
    resumed_from_step: int | None = Field(default=None, description="Step of the checkpoint that it began with.")
    lost_steps: int | None = Field(default=None, description="Steps of the attempt before that were done again.")
    node_count: int | None = Field(default=None, description="Number of nodes, with those of spares.")
    node_names: Names = Field(default=(), description="Nodes; at most 32.")
    replaced_node_names: Names = Field(
        default=(), description="Nodes of pods that were made anew by themselves; at most 32."
    )
    removed_node_names: Names = Field(default=(), description="Nodes of the attempt before that it left; at most 32.")
    gpu_seconds: int | None = Field(
        default=None, description="Seconds of GPUs that it has held, as far as they are counted in status.gpuSeconds."
    )
    stage_milliseconds: StageMilliseconds = Field(
        default=StageMilliseconds(), description="How long each stage of its start took."
    )


class Round(StatusGroup):
    """How a round ended: one start of all ranks within an attempt."""

    attempt: int = Field(description="Its attempt.")
    round: int = Field(description="Its number within the attempt, 1 for the first.")
    rung: ShortText = Field(
        default=Rung.RESTART_RANKS.value,
        description="How much was made anew: RestartRanks, TakeSpare, Shrink, Grow, ReplacePod or Attempt.",
    )
    reason: ShortText | None = Field(default=None, description="Why it ended, as attempts have it.")
    node_name: ShortText | None = Field(default=None, description="Node of the pod whose fault it was.")
    rank: int | None = Field(default=None, description="Index of that pod.")
    exit_code: int | None = Field(default=None, description="Exit code that the pod would have ended with.")
    message: Text | None = Field(default=None, description="Why it ended, in a sentence.")
    ended_time: Time | None = Field(default=None, description="When, by rank 0's clock.")
    resumed_from_step: int | None = Field(default=None, description="Step that the next round began with.")
    resumed_from_memory: bool | None = Field(
        default=None,
        description="True = from what the nodes had of that step in memory; False = from a checkpoint, or anew.",
    )
    lost_steps: int | None = Field(default=None, description="Steps of this round that were done again.")
    down_seconds: float | None = Field(default=None, description="From the fault to the next round's first new step.")
    silent_seconds: float | None = Field(
        default=None, description="Of downSeconds, those without progress by which a hang was found."
    )
    start_wait_seconds: float | None = Field(
        default=None,
        description="Of downSeconds, those from the fault, or the hang's verdict, until the next round's ranks were started: "
        "all had ended, and the pods that it needed were there and ready.",
    )
    node_count: int | None = Field(default=None, description="Nodes of the next round, if not as many.")


class AvoidedNode(StatusGroup):
    """A node that the job's pods keep off."""

    name: ShortText = Field(description="Node.")
    reason: Text | None = Field(default=None, description="Why.")
    not_cordoned: Text | None = Field(
        default=None,
        description="Why it was not cordoned, though a GPU of it is broken: other jobs may be placed there.",
    )
    strict: bool = Field(default=True, description="False = used again where no other node is free.")
    since_time: Time | None = Field(default=None, description="When it was put on the list.")
    until_time: Time | None = Field(default=None, description="When it may be used again.")
    boot_id: ShortText | None = Field(
        default=None, description="Boot of the node that is avoided; another one ends the avoiding."
    )


class Strike(StatusGroup):
    """A GPU that has already restarted the job."""

    gpu_uuid: ShortText = Field(description="UUID of the GPU.")
    xid: int | None = Field(default=None, description="XID code of the NVIDIA driver, the last time.")
    rank: int | None = Field(default=None, description="Index of the pod, the last time.")
    node_name: ShortText | None = Field(
        default=None, description="Node that remembers it for other jobs; absent where it may be the program's own."
    )
    count: int = Field(default=1, description="How often.")
    hardware_count: int = Field(default=0, description="How often with an XID that programs hardly cause.")
    last_time: Time | None = Field(default=None, description="When last.")
    last_attempt: int | None = Field(default=None, description="In which attempt of this job.")
    last_round: int | None = Field(
        default=None, description="In which round of it; absent where the attempt ended with it."
    )


class CordonedNode(StatusGroup):
    """A node that was cordoned for this job, or is to be."""

    name: ShortText = Field(description="Node.")
    uid: ShortText | None = Field(
        default=None, description="Its uid when it was decided: another node of the same name is left alone."
    )
    reason: Text | None = Field(default=None, description="Why.")
    attempt: int | None = Field(default=None, description="The attempt in which it happened.")
    gpu: FaultGPU | None = Field(default=None, description="The GPU that speaks against it.")
    time: Time | None = Field(default=None, description="When it was decided.")
    done_time: Time | None = Field(
        default=None, description="When it was seen cordoned; absent = not yet, or the node was gone before."
    )
