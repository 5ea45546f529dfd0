"""The one table of causes: every word that `oarlock why` gives, what it means, and what to do.

docs/why.md is made from it. Each reason that the operator gives is a row, so that whatever stands in a status can be
explained; the other rows say more precisely what a reason's words, a kubelet, a scheduler or a report tell. In `next`,
what is in capitals stands for the names (advice.py).
"""

from __future__ import annotations

from enum import StrEnum

from oarlock_api.contract.exit_codes import ExitCode, FailureClass


class Part(StrEnum):
    """What a cause is about; a heading of the table."""

    WELL = "All is well"
    REFUSED = "Not accepted"
    HELD = "Held back before there are pods on nodes"
    NOT_STARTED = "Placed, and not started"
    UNFIT = "The checks before the start"
    ENDED_BY_ITSELF = "The program, its data and its storage"
    ENDED_BY_HARDWARE = "GPUs, nodes, peers"
    TAKEN_AWAY = "Somebody else needed the place"
    DEGRADED = "It runs, and something is wrong"
    CORDONS = "What was done about a node"
    OVER = "Over"


_WAIT = "Nothing: it goes on by itself."


class Cause(StrEnum):
    """A CamelCase word for tools; its part of the table, what it means, and what to do about it."""

    part: Part
    meaning: str
    next: str

    def __new__(cls, word: str, part: Part, meaning: str, next: str = _WAIT) -> Cause:  # noqa: A002, PYI034 - as the table's column is called
        """A member: its word, and its row."""
        member = str.__new__(cls, word)
        member._value_ = word
        member.part, member.meaning, member.next = part, meaning, next
        return member

    # All is well.
    ACCEPTED = "Accepted", Part.WELL, "the operator understands the job and works on it"
    STARTING = "Starting", Part.WELL, "pods, checks before the start, the model: the first step is on its way"
    TRAINING = "Training", Part.WELL, "the gang makes steps"
    TRAINING_AGAIN = "TrainingAgain", Part.WELL, "a later attempt, or one with a new pod, made its first step"
    RANKS_RESTARTED = (
        "RanksRestarted",
        Part.WELL,
        "a fault ended a round: the ranks started anew inside their living pods",
    )
    SURGE_POD = (
        "SurgePod",
        Part.WELL,
        "a pod was asked to go, and trains on while its next one makes itself ready on another node",
    )
    POD_REPLACED = (
        "PodReplaced",
        Part.WELL,
        "a lost pod is made anew by itself, and the others of its attempt stand by or train on",
    )
    MORE_NODES = "MoreNodes", Part.WELL, "a gang of fewer nodes saved, and goes on with more"
    RESUMED_FROM_CHECKPOINT = "ResumedFromCheckpoint", Part.WELL, "it went on from a checkpoint that the output held"
    RESUMED = "Resumed", Part.WELL, "the first attempt after a suspension"
    NODE_RETURNED = "NodeReturned", Part.WELL, "a node may be used again, and the waiting pods are made anew for it"
    GAVE_WAY = (
        "GaveWay",
        Part.WELL,
        "no node was free for rank 0's next pod, so one that the gang can do without left its own to it",
        "Nothing: it is made anew once there is room. Free or mend a node to have it back sooner.",
    )
    RECOVERING = "Recovering", Part.WELL, "the last gang was stopped; the next one is on its way to its first step"
    STOPPING = "Stopping", Part.WELL, "every rank ended well; pods still stop"
    SUSPENDING = "Suspending", Part.WELL, "spec.suspend is true: the pods save and leave"
    SUSPENDED = (
        "Suspended",
        Part.WELL,
        "spec.suspend is true, and nothing runs",
        "`oarlock resume JOB` goes on from the newest checkpoint.",
    )
    SUCCEEDED = "Succeeded", Part.WELL, "every rank ended with 0", "The model is in the output."
    ALL_RANKS_SUCCEEDED = (
        "AllRanksSucceeded",
        Part.WELL,
        "every pod ended with 0",
        "The model is in the output.",
    )
    ALL_PODS_PLACED = "AllPodsPlaced", Part.WELL, "every pod has a node"
    NOT_SUSPENDED = "NotSuspended", Part.WELL, "spec.suspend is false, and so it is"
    SAVED_ON_REQUEST = "SavedOnRequest", Part.WELL, "the checkpoint that was asked for is there"
    STACKS_TAKEN = "StacksTaken", Part.WELL, "the stacks that were asked for are in the pods' logs and the history"
    VERIFIED = "Verified", Part.WELL, "the output was written to"
    NOT_CHECKED = "NotChecked", Part.WELL, "no pod has checked the output yet"
    NOT_CREATED = "NotCreated", Part.WELL, "there are no pods yet"
    AS_EXPECTED = "AsExpected", Part.WELL, "nothing is degraded"

    # Not accepted.
    NO_OPERATOR = (
        "NoOperator",
        Part.REFUSED,
        "no operator has answered to this job",
        "Look whether the operator runs, and whether it watches this namespace: `kubectl -n oarlock get pods`.",
    )
    PENDING = "Pending", Part.REFUSED, "nothing was decided yet"
    INVALID_SPEC = (
        "InvalidSpec",
        Part.REFUSED,
        "the job does not fit this operator's API",
        "Correct the field that the message names, and apply the job anew.",
    )
    INVALID_MANIFEST = (
        "InvalidManifest",
        Part.REFUSED,
        "the API server calls a pod of this job invalid",
        "Correct spec.pod as the message says, in a new job.",
    )
    NAME_TAKEN = (
        "NameTaken",
        Part.REFUSED,
        "a Service of the job's name belongs to somebody else",
        "Delete that Service, or give the job another name.",
    )
    OUTPUT_IN_USE = (
        "OutputInUse",
        Part.REFUSED,
        "another unfinished job writes to the same place, or took the output over (code 88)",
        "Wait for the other job or delete it, or set another output.directory.",
    )
    WAITING_FOR_PREDECESSOR = (
        "WaitingForPredecessor",
        Part.REFUSED,
        "a deleted job of the same name, or with the same output, still has pods or a Service",
        "Wait; if a pod does not stop, look at its node. One without an owner, which the message names, is yours to delete.",
    )
    GANG_UNAVAILABLE = (
        "GangUnavailable",
        Part.REFUSED,
        "the cluster does not serve scheduling.gang, or the operator may not make its groups",
        "Install the gang system, give the operator its rights (the chart's values), or choose another scheduling.gang.",
    )
    QUEUE_MISMATCH = (
        "QueueMismatch",
        Part.REFUSED,
        "the job's label of a Kueue queue says something else than scheduling.queue",
        "Remove the label, or set scheduling.queue to the same queue.",
    )

    # Held back.
    QUEUED = (
        "Queued",
        Part.HELD,
        "the gang's queue holds it back; no GPU is held and no deadline runs",
        "Wait for the queue, or look at its quota: the message has the queue's words.",
    )
    SCHEDULING_GATED = (
        "SchedulingGated",
        Part.HELD,
        "a scheduling gate that is no queue's holds the pods back",
        "Whoever set the gate has to remove it: see schedulingGates in the spec of the pods.",
    )
    QUOTA_EXCEEDED = (
        "QuotaExceeded",
        Part.HELD,
        "a ResourceQuota of the namespace does not take the pods",
        "Free what uses the quota (`kubectl describe quota`), have it raised, or ask for less.",
    )
    ADMISSION_DENIED = (
        "AdmissionDenied",
        Part.HELD,
        "an admission webhook or a policy refuses the pods",
        "Change spec.pod as the webhook's words say, or ask whoever runs that policy.",
    )
    ADMISSION_BROKEN = (
        "AdmissionWebhookFailed",
        Part.HELD,
        "an admission webhook does not answer, so that no pod can be created",
        (
            "Mend or remove the webhook that the message names (`kubectl get validatingwebhookconfigurations,"
            "mutatingwebhookconfigurations`)."
        ),
    )
    CREATE_REFUSED = (
        "CreateRefused",
        Part.HELD,
        "the API server does not take the pods; tried again",
        "The message has the API server's words.",
    )
    NOT_ENOUGH_GPUS = (
        "NotEnoughGPUs",
        Part.HELD,
        "too few free GPUs for the gang",
        "Wait for GPUs, free some, add nodes, or lower spec.nodes or spec.gpusPerNode.",
    )
    NOT_ENOUGH_RESOURCES = (
        "NotEnoughResources",
        Part.HELD,
        "too little free CPU, memory, storage or another resource on the nodes",
        "Lower spec.pod.resources, or free or add nodes.",
    )
    TAINTED = (
        "TaintNotTolerated",
        Part.HELD,
        "nodes have a taint that the pods do not tolerate",
        (
            "Ask who set the taint, and why; then add a toleration to spec.pod.patch.tolerations, or remove it "
            "(`kubectl taint node NODE KEY-`)."
        ),
    )
    NODES_NOT_READY = (
        "NodesNotReady",
        Part.HELD,
        "nodes are not ready, or short of disk, memory or processes: Kubernetes itself has tainted them",
        "Look at NODE and its kubelet (`kubectl describe node NODE`). Do not tolerate the taint: it goes once NODE is well.",
    )
    NODES_UNSCHEDULABLE = (
        "NodesCordoned",
        Part.HELD,
        "nodes that would fit are cordoned",
        "`oarlock nodes` says by whom and why; uncordon what is mended (`oarlock uncordon NODE`).",
    )
    AFFINITY = (
        "NoNodeMatches",
        Part.HELD,
        "no node has the labels that the pods ask for, or the pods may not stand beside each other",
        "Correct spec.pod.patch.nodeSelector, spec.pod.patch.affinity or spec.scheduling.topology, or label nodes.",
    )
    VOLUME_ELSEWHERE = (
        "VolumeElsewhere",
        Part.HELD,
        "a volume can be used on other nodes only",
        "Use a volume that all nodes reach (ReadWriteMany), or nodes where the volume is.",
    )
    CLAIM_MISSING = (
        "ClaimMissing",
        Part.HELD,
        "a PersistentVolumeClaim that the job names is not there",
        "Make the claim in the job's namespace, or correct its name in the job.",
    )
    CLAIM_UNBOUND = (
        "ClaimUnbound",
        Part.HELD,
        "a PersistentVolumeClaim of the job has no volume",
        (
            "`kubectl describe pvc` says why: its class must exist and have a provisioner that runs; without a class, a "
            "PersistentVolume must fit it."
        ),
    )
    NOT_ENOUGH_HEALTHY_NODES = (
        "NotEnoughHealthyNodes",
        Part.HELD,
        "a pod finds no node, and some are avoided strictly",
        "Repair an avoided node and have it used again (`oarlock uncordon NODE`); or suspend, lower spec.nodes, and resume.",
    )
    UNSCHEDULABLE = (
        "Unschedulable",
        Part.HELD,
        "a pod finds no node; the message has the scheduler's words",
        "Free or add nodes, or correct what spec.pod asks of them.",
    )
    SCHEDULING = "Scheduling", Part.HELD, "the scheduler has not said anything yet"
    PLACEMENT_TIMEOUT = (
        "PlacementTimeout",
        Part.HELD,
        "not every pod found a node in time, so all gave way; it is tried again",
        "The message says what was lacking.",
    )
    GANG_IGNORED = (
        "GangIgnored",
        Part.HELD,
        "the cluster did not take the pods for a gang, though it was asked to",
        "The message says what of the gang system to look at.",
    )
    BACKOFF = "Backoff", Part.HELD, "the next attempt waits a little, because the last ones failed fast"

    # Placed, and not started.
    IMAGE_NOT_FOUND = (
        "ImageNotFound",
        Part.NOT_STARTED,
        "the registry has no such image, or the node may not know of it",
        "Correct spec.pod.image (name, tag, digest), or push the image.",
    )
    IMAGE_DENIED = (
        "ImagePullDenied",
        Part.NOT_STARTED,
        "the registry does not give the image to this node",
        "Set spec.pod.imagePullSecrets to a Secret that may pull it.",
    )
    IMAGE_PULL_FAILED = (
        "ImagePullFailed",
        Part.NOT_STARTED,
        "the image could not be pulled",
        "See that the node reaches the registry: name service, network, proxy, certificates, a full disk.",
    )
    INVALID_IMAGE_NAME = (
        "InvalidImageName",
        Part.NOT_STARTED,
        "the image's name is none",
        "Correct spec.pod.image in a new job.",
    )
    MOUNT_FAILED = (
        "MountFailed",
        Part.NOT_STARTED,
        "a node cannot mount a volume",
        "The message has the kubelet's words and, where it is known, what mends it (docs/storage.md).",
    )
    SECRET_MISSING = (
        "SecretMissing",
        Part.NOT_STARTED,
        "a Secret that the job names, or a key of it, is not there",
        "Make the Secret in the job's namespace, or correct its name or key in the job.",
    )
    CONFIG_MISSING = (
        "ConfigMapMissing",
        Part.NOT_STARTED,
        "a ConfigMap that the job names, or a key of it, is not there",
        "Make the ConfigMap in the job's namespace, or correct its name or key in the job.",
    )
    VOLUME_NOT_READY = (
        "VolumeNotReady",
        Part.NOT_STARTED,
        "a claim is missing or unbound, or a node cannot mount a volume",
        "The message has the words and what mends it.",
    )
    CONTAINER_NOT_STARTED = (
        "ContainerNotStarted",
        Part.NOT_STARTED,
        "the node's container runtime cannot start the container",
        "The message has the runtime's words; if only one node says so, look at that node.",
    )
    PROGRAM_MISSING = (
        "ProgramMissing",
        Part.NOT_STARTED,
        "the image lacks the program that is to run",
        "Use the trainer image of the operator's release, or one that is built on it.",
    )
    REFUSED_BY_NODE = (
        "RefusedByNode",
        Part.NOT_STARTED,
        "the kubelet refused a pod that it was given: its devices, its room or what it can do did not fit",
        "Nothing the first time; if it repeats, look at the device plugin and the kubelet of NODE.",
    )
    WAITING = "Waiting", Part.NOT_STARTED, "a placed pod does not start yet"
    STARTUP_DEADLINE_EXCEEDED = (
        "StartupDeadlineExceeded",
        Part.NOT_STARTED,
        "a placed gang did not come up within startupDeadlineSeconds",
        "The message has the kubelet's words.",
    )
    POD_FAILED = (
        "PodFailed",
        Part.NOT_STARTED,
        "a pod failed before a container ran, without a reason, or because its node's copy of the image lacks the program",
        "If it repeats on one node, look at that node.",
    )

    # The checks before the start.
    CLOCKS_APART = (
        "ClocksApart",
        Part.UNFIT,
        "the nodes' clocks do not agree",
        "Run chrony or another NTP client on NODE; `chronyc makestep` sets the clock at once.",
    )
    GPUS_UNFIT = (
        "GPUsUnfit",
        Part.UNFIT,
        "GPUs of the node are missing, busy, or say that they are broken",
        "Look at nvidia-smi on NODE; compare spec.gpusPerNode with what the device plugin gives.",
    )
    NODE_CUT_OFF = (
        "NodeCutOff",
        Part.UNFIT,
        "nodes of the gang do not reach one another",
        "Look at the node's network, firewalls and network policies, between all nodes of the gang.",
    )
    SLOW_NETWORK = (
        "SlowNetwork",
        Part.UNFIT,
        "the network between the nodes is slower than preflight.minBusBandwidth, or NCCL takes TCP beside InfiniBand",
        "Look at the fabric, and at memory that can't be locked (docs/network.md).",
    )
    PREFLIGHT_FAILED = (
        "PreflightFailed",
        Part.UNFIT,
        "code 87: the checks before the start found the node unfit",
        "Look at what the message names on NODE.",
    )

    # The program, its data, its storage.
    APPLICATION_ERROR = (
        "ApplicationError",
        Part.ENDED_BY_ITSELF,
        "the program failed: an exception, or a code that the contract does not name",
        "`oarlock logs JOB --attempt ATTEMPT` has its last words.",
    )
    CONFIGURATION_ERROR = (
        "ConfigurationError",
        Part.ENDED_BY_ITSELF,
        "code 85: the job cannot run as it is written; restarting would not help",
        "Change what the message names, in a new job.",
    )
    DATA_UNUSABLE = (
        "DataUnusable",
        Part.ENDED_BY_ITSELF,
        "code 85: the training data are not there, or cannot be used",
        "Correct the dataset that the message names: its source, its table, its pictures; then apply the job anew.",
    )
    CREDENTIALS_REFUSED = (
        "CredentialsRefused",
        Part.ENDED_BY_ITSELF,
        "code 85: a store refuses the keys of the job",
        "Correct the Secret that the message names, then apply the job anew.",
    )
    STORAGE_FULL = (
        "StorageFull",
        Part.ENDED_BY_ITSELF,
        "code 84: there is no room in the output, or its quota is used up",
        "Free some, enlarge the volume, or lower spec.training.checkpoint.keep.",
    )
    STORAGE_DENIED = (
        "OutputNotWritable",
        Part.ENDED_BY_ITSELF,
        "code 84: the pod may not write to the output",
        "Give the directory to the pod's user and group, or mount it read-write: the message says which.",
    )
    STORAGE_FAULT = (
        "StorageFault",
        Part.ENDED_BY_ITSELF,
        "code 84: the output could not be read or written",
        "Look at the storage and the way to it; the message has its words.",
    )
    HANG = (
        "Hang",
        Part.ENDED_BY_ITSELF,
        "code 83: no step in time; the stacks of all ranks are kept in the output",
        "Look at the stack of the rank that the message names: what it waits for is the cause.",
    )
    GPU_OUT_OF_MEMORY = (
        "GPUOutOfMemory",
        Part.ENDED_BY_ITSELF,
        "a GPU's memory was too small for what the job does",
        "Lower batchSize, recompute activations, shard more (engine.zeroStage): `oarlock plan` says what fits.",
    )
    NON_FINITE_LOSS = (
        "NonFiniteLoss",
        Part.ENDED_BY_ITSELF,
        "losses are not finite; ten in a row end the attempt",
        "Look at the curve and the learning rate; to go back: suspend, move the newer checkpoints elsewhere, resume.",
    )
    OOM_KILLED = (
        "OOMKilled",
        Part.ENDED_BY_ITSELF,
        "the kernel killed the container, or a process of it, for its memory",
        "Raise spec.pod.resources.limits.memory, or lower batchSize or data.tuning.workers.",
    )
    LIMIT_EXCEEDED = (
        "LimitExceeded",
        Part.ENDED_BY_ITSELF,
        "a kubelet evicted a pod for a limit of its own, such as ephemeral storage or an emptyDir's sizeLimit",
        "Raise that limit in spec.pod, or have the program write less to the node's disk.",
    )
    KILLED = (
        "ProcessKilled",
        Part.ENDED_BY_ITSELF,
        "a rank's process was killed by a signal that nothing of ours sent",
        "If nobody did it by hand: the kernel log of NODE (dmesg) tells, and a crash's stack is in the log.",
    )

    # GPUs, nodes, peers.
    GPU_FAULT = (
        "GPUFault",
        Part.ENDED_BY_HARDWARE,
        "codes 80 and 81: a GPU or its driver; the evidence names it",
        "Reset or repair the GPU of NODE, then `oarlock uncordon NODE`.",
    )
    GPU_PROCESS_FAULT = (
        "GPUProcessFault",
        Part.ENDED_BY_HARDWARE,
        "code 81: a fault that spares the GPU: its processes start anew, and the node is not blamed the first time",
        "Nothing; if it comes back on the same GPU, the operator takes the node out.",
    )
    PEER_LOST = (
        "PeerLost",
        Part.ENDED_BY_HARDWARE,
        "code 82: a pod lost a peer, and no cause spoke up",
        "If it repeats between the same nodes, look at the network between them.",
    )
    FINDING_CAUSE = (
        "FindingCause",
        Part.ENDED_BY_HARDWARE,
        "pods lost a peer a moment ago, and the pod that caused it may still say why",
    )
    POD_DISAPPEARED = (
        "PodDisappeared",
        Part.ENDED_BY_HARDWARE,
        "a pod is gone, and Oarlock did not ask for it",
        "Somebody or something deleted it: the API server's audit log says who.",
    )
    AGENT_SILENT = (
        "AgentSilent",
        Part.ENDED_BY_HARDWARE,
        "an agent answers neither the operator nor its kubelet",
        "Look at NODE: its network, its load, its kubelet.",
    )
    NODE_LOST = (
        "NodeLost",
        Part.ENDED_BY_HARDWARE,
        "the node is gone, or not ready while its pod does not answer",
        "Look at NODE: power, kernel, kubelet.",
    )
    NODE_RESTARTED = (
        "NodeRestarted",
        Part.ENDED_BY_HARDWARE,
        "a node was restarted under its pod, by what its boot ID tells",
        "Nothing, if somebody restarted it; drain it first next time. Else look at NODE's kernel log.",
    )
    END_UNKNOWN = (
        "EndUnknown",
        Part.ENDED_BY_HARDWARE,
        "a container is gone and nobody saw it end, as where its node or the container runtime was restarted",
        "Nothing, if NODE was restarted on purpose; else look at its kernel's log and its uptime.",
    )

    # Somebody else needed the place.
    EVICTED = (
        "Evicted",
        Part.TAKEN_AWAY,
        "somebody needed the node: an eviction, a drain, a taint, or a node short of something; costs no budget",
        "Nothing: it goes on elsewhere from what it saved.",
    )
    PREEMPTED = (
        "Preempted",
        Part.TAKEN_AWAY,
        "a scheduler or a queue gave the place to work of a higher priority; costs no budget",
        "Nothing: it goes on once there is room; a higher priority class keeps its place.",
    )
    NODE_MARKED = (
        "NodeMarked",
        Part.TAKEN_AWAY,
        "somebody else wants a node of the gang emptied: it saves and moves once spares are free",
    )
    KILLED_AFTER_GRACE = (
        "KilledAfterGrace",
        Part.TAKEN_AWAY,
        "a pod that was told to go had not left when its grace was over, and was killed",
        "Nothing, if only victims of a fault show it; else raise spec.pod.terminationGracePeriodSeconds.",
    )
    LEFT_ON_REQUEST = "LeftOnRequest", Part.TAKEN_AWAY, "code 86: the pods were told to go, and saved"

    # It runs, and something is wrong.
    STATUS_UNREADABLE = (
        "StatusUnreadable",
        Part.DEGRADED,
        "another release wrote a status of which not even attempt and budgets can be read; nothing is decided",
        "Install the newer operator again.",
    )
    STATUS_SILENT = (
        "StatusSilent",
        Part.DEGRADED,
        "a pod's /status does not answer the operator",
        "Look at the network between operator and pod, and at the network policies of both.",
    )
    KEY_REFUSED = (
        "KeyRefused",
        Part.DEGRADED,
        "a pod was given another key than this operator's; it trains, and tells nothing",
        "Keep the old key as a further line of the operator's key file until the next attempt.",
    )
    CHECKPOINT_STORAGE_FULL = (
        "CheckpointStorageFull",
        Part.DEGRADED,
        "there was no room for the last checkpoint: a fault now would cost all steps since the one before",
        "Free some room in the output, enlarge the volume, or lower spec.training.checkpoint.keep.",
    )
    CHECKPOINT_NOT_COPIED = (
        "CheckpointNotCopied",
        Part.DEGRADED,
        "the last copy to checkpoint.upload failed; the next one is tried anew",
        "Look at the store's rights, quota and address.",
    )
    MEMORY_OFF = (
        "MemoryOff",
        Part.DEGRADED,
        "recovery.memory is on, and no state is kept in memory: ranks that start anew go on from the newest checkpoint",
        "Do as the message says: often it lacks memory (spec.pod.sharedMemory). A new attempt tries it again.",
    )
    MEMORY_NOT_COPIED = (
        "MemoryNotCopied",
        Part.DEGRADED,
        "nodes do not get each other's state in memory in time: where one is lost, training goes back to a checkpoint",
        "Look in the pods' logs for 'is not copied just now'. Let the pods reach each other at spec.pod.ports.status.",
    )
    SLOW_RANK = (
        "SlowRank",
        Part.DEGRADED,
        "one rank computes 10 % slower than the others for long, and the whole gang with it",
        (
            "The sentence says why, as far as NODE shows it: GPU clocks, CPU share, storage. The gang goes on as it is; "
            "`recovery.slowRank: Migrate` moves it, or `kubectl cordon NODE`."
        ),
    )
    NODE_NOT_READY = (
        "NodeNotReady",
        Part.DEGRADED,
        "a node is not ready, but the pod there answers: the gang is left alone",
        "Look at the kubelet of NODE.",
    )
    GPU_WARNING = (
        "GPUWarning",
        Part.DEGRADED,
        "a GPU warns: the ranks have saved, and the next attempt rather avoids its node",
        "Nothing now; have the GPU of NODE looked at when the job is done.",
    )
    GPU_UNMONITORED = (
        "GPUUnmonitored",
        Part.DEGRADED,
        "nobody watches a pod's GPUs: a fault shows only in what the program does",
        "See docs/runbooks/gpu-unmonitored.md.",
    )
    FEWER_NODES = (
        "FewerNodes",
        Part.DEGRADED,
        "the gang trains on fewer nodes than spec.nodes: a step takes longer, and the training is the same",
        (
            "Nothing: it takes more nodes as soon as the pods of the message have one. "
            "Make room for them (under Coscheduling and Volcano for all of them), or mend a node."
        ),
    )
    SPARES_LACKING = (
        "SparesLacking",
        Part.DEGRADED,
        "spares that the job asks for are not there, or have no effect here: the next lost pod is waited for",
        "The message says why: give the spares room, or have the job placed by a gang system that takes single pods back.",
    )
    GRACE_TOO_SHORT = (
        "GraceTooShort",
        Part.DEGRADED,
        "by the last drill or eviction, a save takes longer than the pods' grace: steps would be lost",
        "Raise spec.pod.terminationGracePeriodSeconds above the seconds of the message, at the next suspension.",
    )
    REQUEST_NOT_SERVED = (
        "RequestNotServed",
        Part.DEGRADED,
        "a save, a drill or stacks that were asked for were refused, or came to nothing",
        "The message says why; once that is over, ask again with another id.",
    )
    POD_NOT_STOPPING = (
        "PodNotStopping",
        Part.DEGRADED,
        "a pod did not stop in time: a recovery goes on without it, an end or a suspension waits for it",
        "A process hangs in a driver or on storage: mend or reboot NODE.",
    )

    # What was done about a node.
    NODE_CORDONED = (
        "NodeCordoned",
        Part.CORDONS,
        "a node is cordoned on a report's evidence",
        "Repair it, then `oarlock uncordon NODE`.",
    )
    CORDON_REFUSED = (
        "CordonRefused",
        Part.CORDONS,
        "a brake holds, or the report is only a claim: the node is only avoided by the job",
        "Look at the node yourself (docs/runbooks/cordon-breaker.md).",
    )
    CORDON_FAILED = (
        "CordonFailed",
        Part.CORDONS,
        "a node that was to be cordoned is not yet: tried again for an hour, and avoided",
        "`kubectl cordon NODE`, and look why the operator could not.",
    )
    CORDON_DRY_RUN = (
        "CordonDryRun",
        Part.CORDONS,
        "a node would have been cordoned, were the job's or the operator's cordon not DryRun",
        "Cordon it yourself, or set spec.recovery.cordon to Auto.",
    )
    POD_FORCE_DELETED = (
        "PodForceDeleted",
        Part.CORDONS,
        "a pod was deleted by force, because its node is lost and its time over",
    )

    # Over.
    APPLICATION_RESTARTS_EXHAUSTED = (
        "ApplicationRestartsExhausted",
        Part.OVER,
        "recovery.maxApplicationRestarts is used up",
        "Mend what the last fault names; a new job of the same name and output goes on from the newest checkpoint.",
    )
    INFRASTRUCTURE_RESTARTS_EXHAUSTED = (
        "InfrastructureRestartsExhausted",
        Part.OVER,
        "recovery.maxInfrastructureRestarts is used up",
        (
            "Mend what the last faults have in common; a new job of the same name and output goes on from the newest "
            "checkpoint."
        ),
    )
    NO_PROGRESS = (
        "NoProgress",
        Part.OVER,
        "too many attempts in a row, or evictions, made no progress",
        "Mend what the last fault names, or save more often.",
    )
    DEADLINE_EXCEEDED = (
        "DeadlineExceeded",
        Part.OVER,
        "activeDeadlineSeconds are over; the pods had their grace to save",
        "A new job of the same name and output, with more time, goes on from the newest checkpoint.",
    )
    GONE = (
        "Gone",
        Part.OVER,
        "the job is not there any more: this is what its output tells",
        "A new job with the same output goes on from the newest checkpoint.",
    )
    FAILED = "Failed", Part.OVER, "the job has failed", "The message says why."


OF_CODE = {
    ExitCode.DONE: Cause.SUCCEEDED,
    ExitCode.REPLACE_NODE: Cause.GPU_FAULT,
    ExitCode.RESTART_PROCESS: Cause.GPU_PROCESS_FAULT,
    ExitCode.PEER_LOST: Cause.PEER_LOST,
    ExitCode.HANG: Cause.HANG,
    ExitCode.STORAGE: Cause.STORAGE_FAULT,
    ExitCode.CONFIGURATION: Cause.CONFIGURATION_ERROR,
    ExitCode.LEFT_ON_REQUEST: Cause.LEFT_ON_REQUEST,
    ExitCode.PREFLIGHT: Cause.PREFLIGHT_FAILED,
    ExitCode.FENCED: Cause.OUTPUT_IN_USE,
}
"""What an agent's exit code means where its report says no more."""

OF_CLASS = {
    FailureClass.GPU: Cause.GPU_FAULT,
    FailureClass.PEER_LOST: Cause.PEER_LOST,
    FailureClass.HANG: Cause.HANG,
    FailureClass.STORAGE: Cause.STORAGE_FAULT,
    FailureClass.CONFIGURATION: Cause.CONFIGURATION_ERROR,
    FailureClass.PREFLIGHT: Cause.PREFLIGHT_FAILED,
    FailureClass.APPLICATION: Cause.APPLICATION_ERROR,
    FailureClass.FENCED: Cause.OUTPUT_IN_USE,
    FailureClass.REQUESTED: Cause.LEFT_ON_REQUEST,
    FailureClass.NODE_LOST: Cause.NODE_LOST,
}
"""The same of a fault's class, as status.lastFault has it."""


def named(word: str) -> Cause | None:
    """The cause of that word, such as a reason of the operator; None for what the table has not."""
    return next((one for one in Cause if one == word), None)
