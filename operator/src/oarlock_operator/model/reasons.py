"""Every reason that the operator gives: in status.reason, in conditions, for attempts and in Events, with its meaning.

The one list of them: docs/reference/status.md is made from it. Where a kubelet or the scheduler gives a reason of its own
(ImagePullBackOff, UnexpectedAdmissionError, ...), it is passed on as it is.
"""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """A CamelCase word for tools, and what it means for people."""

    meaning: str

    def __new__(cls, word: str, meaning: str) -> Reason:  # noqa: PYI034 - an enum's members are of the enum itself
        """A member: its word, and its meaning."""
        member = str.__new__(cls, word)
        member._value_ = word
        member.meaning = meaning
        return member

    # How a job lives.
    PENDING = "Pending", "nothing was decided yet"
    ACCEPTED = "Accepted", "the operator understands the job and works on it"
    STARTING = "Starting", "the first gang is being made"
    TRAINING = "Training", "the gang makes steps"
    RESUMED_FROM_CHECKPOINT = "ResumedFromCheckpoint", "the first attempt began with a checkpoint that the output held"
    TRAINING_AGAIN = (
        "TrainingAgain",
        "a later attempt, or one with a new pod, made its first step; the Event says where and from which step",
    )
    WAITING_FOR_PREDECESSOR = (
        "WaitingForPredecessor",
        "a deleted job of the same name, or with the same output, still has pods or a Service",
    )
    QUEUED = "Queued", "the gang's queue holds it back; no deadline runs"
    SUSPENDING = "Suspending", "spec.suspend is true: the pods save and leave"
    SUSPENDED = "Suspended", "nothing runs; the spec may be changed"
    NOT_SUSPENDED = "NotSuspended", "spec.suspend is false, and so it is"
    RESUMED = "Resumed", "the first attempt after a suspension"
    STOPPING = "Stopping", "every rank ended well; spares, or pods of earlier attempts, still stop"
    SUCCEEDED = "Succeeded", "the job has succeeded"
    ALL_RANKS_SUCCEEDED = "AllRanksSucceeded", "every pod ended with 0"

    # Why a job is refused or ends in Failed.
    INVALID_SPEC = "InvalidSpec", "the job does not fit this operator's API"
    GANG_UNAVAILABLE = (
        "GangUnavailable",
        "the cluster does not serve scheduling.gang, or the operator may not make its groups; waited for, for a minute",
    )
    QUEUE_MISMATCH = "QueueMismatch", "the job's label of a Kueue queue says something else than scheduling.queue"
    NAME_TAKEN = "NameTaken", "a Service of the job's name belongs to somebody else"
    INVALID_MANIFEST = "InvalidManifest", "the API server calls a pod of this job invalid: mend spec.pod"
    OUTPUT_IN_USE = "OutputInUse", "another unfinished job writes to the same place"
    DEADLINE_EXCEEDED = "DeadlineExceeded", "activeDeadlineSeconds are over; the pods had their grace to save"
    STARTUP_DEADLINE_EXCEEDED = (
        "StartupDeadlineExceeded",
        "a placed gang did not come up within startupDeadlineSeconds; the message has the kubelet's words",
    )
    NO_PROGRESS = "NoProgress", "too many attempts in a row, or evictions, made no progress"
    APPLICATION_RESTARTS_EXHAUSTED = "ApplicationRestartsExhausted", "recovery.maxApplicationRestarts is used up"
    INFRASTRUCTURE_RESTARTS_EXHAUSTED = (
        "InfrastructureRestartsExhausted",
        "recovery.maxInfrastructureRestarts is used up",
    )

    # Why an attempt follows another.
    APPLICATION_ERROR = (
        "ApplicationError",
        "the program failed: an exception, or a code that the contract does not name",
    )
    PROCESS_KILLED = "ProcessKilled", "a rank's process was killed by a signal that nothing of ours sent"
    KILLED_AFTER_GRACE = (
        "KilledAfterGrace",
        "a pod that was told to go had not left when its grace was over, and was killed",
    )
    GPU_OUT_OF_MEMORY = "GPUOutOfMemory", "a GPU's memory was too small for what the job does"
    OOM_KILLED = "OOMKilled", "the kernel killed the container, or a process of it, for its memory"
    LIMIT_EXCEEDED = (
        "LimitExceeded",
        "a kubelet evicted a pod for a limit of its own, such as ephemeral storage or an emptyDir's sizeLimit",
    )
    GPU_FAULT = "GPUFault", "codes 80 and 81: a GPU or its driver"
    PEER_LOST = "PeerLost", "code 82: the pod lost a peer, and no cause spoke up"
    HANG = "Hang", "code 83: no step in time; stacks are kept in the output"
    AGENT_SILENT = "AgentSilent", "an agent answers neither the operator nor its kubelet"
    STORAGE_FAULT = "StorageFault", "code 84: the output could not be read or written"
    CONFIGURATION_ERROR = "ConfigurationError", "code 85: the configuration or the data; restarting would not help"
    LEFT_ON_REQUEST = "LeftOnRequest", "code 86: the pods were told to go, and saved"
    PREFLIGHT_FAILED = "PreflightFailed", "code 87: the checks before the start found the node unfit"
    EVICTED = "Evicted", "somebody needed the node: eviction, preemption or a taint; costs no budget"
    NODE_RESTARTED = "NodeRestarted", "a node was restarted under its pod, by what its boot ID tells"
    END_UNKNOWN = (
        "EndUnknown",
        "a container is gone and nobody saw it end, as where its node or the container runtime was restarted",
    )
    NODE_LOST = "NodeLost", "the node is gone, or not ready while its pod does not answer"
    POD_DISAPPEARED = "PodDisappeared", "a pod is gone, and Oarlock did not ask for it"
    POD_FAILED = (
        "PodFailed",
        "a pod failed before a container ran, without a reason, or because its node's copy of the image lacks the program",
    )
    REFUSED_BY_NODE = (
        "RefusedByNode",
        "a kubelet did not let a pod in, for a condition of its node such as DiskPressure",
    )
    NODE_MARKED = (
        "NodeMarked",
        "somebody else wants a node of the gang emptied: it saves and moves once spares are free; costs no budget",
    )
    NODE_RETURNED = (
        "NodeReturned",
        "a node that was avoided may be used again, and the waiting pods are made anew for it; costs no budget",
    )
    GAVE_WAY = (
        "GaveWay",
        "no node was free for rank 0's next pod, so one that the gang can do without left its own; costs no budget",
    )
    PLACEMENT_TIMEOUT = "PlacementTimeout", "not every pod found a node in time, so all gave way; costs no budget"

    # What else is told.
    CREATE_REFUSED = "CreateRefused", "a quota or a policy does not take the pods; tried again"
    ALL_PODS_PLACED = "AllPodsPlaced", "every pod has a node"
    NOT_CREATED = "NotCreated", "there are no pods yet"
    SCHEDULING = "Scheduling", "the scheduler has not said anything yet"
    GANG_IGNORED = "GangIgnored", "the cluster did not take the pods for a gang, though it was asked to"
    UNSCHEDULABLE = "Unschedulable", "a pod finds no node; the message has the scheduler's words"
    NOT_ENOUGH_HEALTHY_NODES = "NotEnoughHealthyNodes", "a pod finds no node, and some are avoided strictly"
    WAITING = "Waiting", "a placed pod does not start yet"
    VERIFIED = "Verified", "the output was written to"
    VOLUME_NOT_READY = (
        "VolumeNotReady",
        "a claim is missing or unbound, or a node cannot mount a volume; the message has the words and what mends it",
    )
    NOT_CHECKED = "NotChecked", "no pod has checked the output yet"
    AS_EXPECTED = "AsExpected", "nothing is degraded"
    STATUS_UNREADABLE = (
        "StatusUnreadable",
        "another release wrote a status of which not even attempt and budgets can be read; nothing is decided meanwhile",
    )
    STATUS_SILENT = "StatusSilent", "a pod's /status does not answer this operator"
    KEY_REFUSED = "KeyRefused", "a pod was given another key than this operator's; it trains, and tells nothing"
    NON_FINITE_LOSS = (
        "NonFiniteLoss",
        "losses are not finite: one of the last five minutes, or ten in a row, which end an attempt",
    )
    CHECKPOINT_STORAGE_FULL = (
        "CheckpointStorageFull",
        "there was no room for the last checkpoint; training goes on, and would lose what came after the one before",
    )
    CHECKPOINT_NOT_COPIED = (
        "CheckpointNotCopied",
        "the last copy to checkpoint.upload failed; the next one is tried anew",
    )
    MEMORY_OFF = (
        "MemoryOff",
        "recovery.memory is on, and no state is kept in memory: ranks that start anew go on from the newest checkpoint",
    )
    MEMORY_NOT_COPIED = (
        "MemoryNotCopied",
        "nodes do not get each other's state in memory in time: where one is lost, training goes back to a checkpoint",
    )
    SLOW_RANK = (
        "SlowRank",
        "one rank's forward passes take 10 % longer than the others'; recovery.slowRank: Migrate has the gang leave its node",
    )
    SLOW_NETWORK = (
        "SlowNetwork",
        "the network between the nodes is slower than preflight.minBusBandwidth, or NCCL takes TCP beside InfiniBand",
    )
    GRACE_TOO_SHORT = (
        "GraceTooShort",
        "by the last drill or eviction, a save takes longer than pod.terminationGracePeriodSeconds: steps would be lost",
    )
    SPARES_LACKING = (
        "SparesLacking",
        "spares are not there, or spec.spares and spec.elastic have no effect here; training goes on without",
    )
    FEWER_NODES = "FewerNodes", "the gang trains on fewer nodes than spec.nodes, until its lost pods have a node again"
    MORE_NODES = "MoreNodes", "a gang of fewer nodes saved and goes on with more: nothing broke, and nobody is charged"
    RANKS_RESTARTED = (
        "RanksRestarted",
        "a round ended, and all ranks start anew inside their living pods; the Event has the fault, status.rounds all of it",
    )
    SURGE_POD = (
        "SurgePod",
        "a pod was asked to go, and its next one is made while it still trains; status.recovery.surging has which",
    )
    POD_REPLACED = (
        "PodReplaced",
        "a lost pod is made anew; the others of its attempt stand by or train on; status.recovery.replacing has which",
    )
    SAVED_ON_REQUEST = "SavedOnRequest", "the checkpoint that oarlock.dev/request asked for is there"
    STACKS_TAKEN = "StacksTaken", "the stacks that oarlock.dev/request asked for are in the pods' logs and the history"
    REQUEST_NOT_SERVED = (
        "RequestNotServed",
        "what oarlock.dev/request asked was refused, or came to nothing; status.request has the words",
    )
    NODE_NOT_READY = "NodeNotReady", "a node is not ready, but the pod there answers: the gang is left alone"
    GPU_WARNING = (
        "GPUWarning",
        "a GPU warns: the ranks have saved, and the next attempt rather avoids its node, or a rule acts on it",
    )
    GPU_UNMONITORED = (
        "GPUUnmonitored",
        "nobody watches a pod's GPUs, for a minute or longer: it trains, and a fault shows only in what the program does",
    )
    POD_NOT_STOPPING = (
        "PodNotStopping",
        "a pod did not stop in time: a recovery goes on without it and avoids its node, an end or a suspension waits for it",
    )
    POD_FORCE_DELETED = "PodForceDeleted", "a pod was deleted by force, because its node is lost and its time over"
    NODE_CORDONED = "NodeCordoned", "a node is cordoned on a report's evidence"
    CORDON_REFUSED = (
        "CordonRefused",
        "a brake holds, or the report is only a claim: the node is only avoided by the job",
    )
    CORDON_FAILED = "CordonFailed", "a node that was to be cordoned is not yet: tried again for an hour, and avoided"
    CORDON_DRY_RUN = (
        "CordonDryRun",
        "a node would have been cordoned, were the job's or the operator's cordon not DryRun",
    )


STARTS = frozenset({None, Reason.RESUMED, Reason.PLACEMENT_TIMEOUT, Reason.NODE_RETURNED})
"""Why attempts begin that recover from nothing."""
VOLUNTARY = frozenset({Reason.EVICTED, Reason.NODE_MARKED, Reason.LEFT_ON_REQUEST, Reason.SLOW_RANK})
"""Why attempts begin that nobody is to blame for: the pods of the one before saved, or were given the time to."""


UNMONITORED = "nobody watches these pods' GPUs, and they train on: "
"""How GPUUnmonitored is told. It stands in the condition behind a slow network too, and a new leader finds it there."""
