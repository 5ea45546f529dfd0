"""From the words of schedulers, kubelets, API servers and of our own reports to a cause. The first row that fits counts.

The texts that are looked for are those of Kubernetes 1.31 and newer, containerd, CRI-O, and of the trainer; fixtures that
were recorded from real components hold them (client/tests/explain/facts).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from oarlock.explain.causes import Cause
from oarlock_api.contract.kubelet_words import REJECTED
from oarlock_api.contract.program_endings import PROGRAM_ENDINGS

Row = tuple[str, Cause]


def _of(text: str, rows: Sequence[Row]) -> Cause | None:
    return next((cause for pattern, cause in rows if re.search(pattern, text, re.IGNORECASE)), None)


_CREATION: tuple[Row, ...] = (
    (r"exceeded quota|failed quota|is forbidden: .*quota", Cause.QUOTA_EXCEEDED),
    (r"failed calling webhook|failed to call webhook", Cause.ADMISSION_BROKEN),
    (
        r"admission webhook .* denied|denied the request|ValidatingAdmissionPolicy|violates PodSecurity",
        Cause.ADMISSION_DENIED,
    ),
)


def of_creation(text: str) -> Cause:
    """Why an API server does not take pods."""
    return _of(text, _CREATION) or Cause.CREATE_REFUSED


_SCHEDULER: tuple[Row, ...] = (
    (r"persistentvolumeclaim \S+ not found", Cause.CLAIM_MISSING),
    (r"unbound immediate PersistentVolumeClaims|waiting for .*PersistentVolumeClaim", Cause.CLAIM_UNBOUND),
    (r"didn't find available persistent volumes to bind", Cause.CLAIM_UNBOUND),
)
"""What keeps a pod from all nodes at once."""
_NODES: tuple[Row, ...] = (
    (r"^Insufficient (\S*gpu\S*|nvidia\.com/\S+|amd\.com/\S+)$", Cause.NOT_ENOUGH_GPUS),
    (r"^Insufficient|^Too many pods|cannot allocate all claims", Cause.NOT_ENOUGH_RESOURCES),
    (r"\{node\.kubernetes\.io/unschedulable", Cause.NODES_UNSCHEDULABLE),
    (r"untolerated taint.*\{node\.(cloudprovider\.)?kubernetes\.io/", Cause.NODES_NOT_READY),
    (r"untolerated taint", Cause.TAINTED),
    (r"were unschedulable", Cause.NODES_UNSCHEDULABLE),
    (r"volume node affinity", Cause.VOLUME_ELSEWHERE),
    (r"available persistent volumes", Cause.CLAIM_UNBOUND),
    (r"node affinity|node\(s\) didn't match|affinity rules|topology spread|free ports", Cause.AFFINITY),
)
"""What keeps a pod from some nodes, as the parts of the scheduler's sentence say it."""


def of_scheduling(text: str) -> Cause | None:
    """What keeps a pod from every node, whatever the nodes are."""
    return _of(text, _SCHEDULER)


def of_nodes(part: str) -> Cause | None:
    """What a part of the scheduler's sentence says of some nodes."""
    return _of(part, _NODES)


_KUBELET: tuple[Row, ...] = (
    (r"^InvalidImageName|couldn't parse image|invalid reference format", Cause.INVALID_IMAGE_NAME),
    (r"^ErrImageNeverPull|not present with pull policy of Never", Cause.IMAGE_NOT_FOUND),
    (
        r"(pull|image).*(unauthorized|authentication required|no basic auth|authorization failed|403 Forbidden|denied: )",
        Cause.IMAGE_DENIED,
    ),
    (
        r"(ErrImagePull|ImagePullBackOff|Failed to pull image).*(not found|manifest unknown|does not exist|NotFound)",
        Cause.IMAGE_NOT_FOUND,
    ),
    (
        r"ErrImagePull|ImagePullBackOff|RegistryUnavailable|ImageInspectError|failed to pull image",
        Cause.IMAGE_PULL_FAILED,
    ),
    (
        r"secret \"?[^ ]+\"? not found|couldn't find key .* in Secret|references non-existent secret key",
        Cause.SECRET_MISSING,
    ),
    (
        r"configmap \"?[^ ]+\"? not found|couldn't find key .* in ConfigMap|references non-existent config key",
        Cause.CONFIG_MISSING,
    ),
    (r"persistentvolumeclaim .*not found", Cause.CLAIM_MISSING),
    (r"FailedMount|FailedAttachVolume|FailedMapVolume|MountVolume|Unable to attach or mount", Cause.MOUNT_FAILED),
    # A program of the node's own, not of the image: the container runtime runs it before the container's.
    (
        r"(?=[\s\S]*(\bhooks?\b|nvidia-container))[\s\S]*(executable file .*not found|exec: .*(no such file|permission))",
        Cause.CONTAINER_NOT_STARTED,
    ),
    (
        r"its image (has no|lacks)|executable file .*not found|exec: .*(no such file|permission denied)",
        Cause.PROGRAM_MISSING,
    ),
    (rf"{REJECTED}|UnexpectedAdmissionError|^OutOf|NodeAffinity|Allocate failed", Cause.REFUSED_BY_NODE),
    (
        (
            r"CreateContainerError|RunContainerError|CreateContainerConfigError|StartError|ContainerCannotRun|"
            r"FailedCreatePodSandBox|CrashLoopBackOff|failed to (create|start) (containerd task|container|shim)"
        ),
        Cause.CONTAINER_NOT_STARTED,
    ),
)


def of_kubelet(text: str) -> Cause | None:
    """Why a placed pod does not start. `text`: the kubelet's reason, a colon, and its words."""
    return _of(text, _KUBELET)


_SAID: tuple[Row, ...] = (
    (r"\bclock: ", Cause.CLOCKS_APART),
    (r"\bGPUs( on node \S+)?: ", Cause.GPUS_UNFIT),
    (r"cannot reach rank 0|cut off|do not reach one another", Cause.NODE_CUT_OFF),
    (r"^network|minBusBandwidth", Cause.SLOW_NETWORK),
)
_STORAGE: tuple[Row, ...] = (
    (
        (
            r"No space left|has too little room|it is full|quota is used up|Disk quota exceeded|as many files as it can|"
            r"\[Errno (28|122)\]|QuotaExceeded|StorageFull"
        ),
        Cause.STORAGE_FULL,
    ),
    (r"belongs to \d+:\d+|mounted read-only|Permission denied", Cause.STORAGE_DENIED),
)
_CONFIGURATION: tuple[Row, ...] = (
    (r"its image (has no|lacks)|executable file .*not found|can't be started in this image", Cause.PROGRAM_MISSING),
    (
        r"credentialsSecretRef|the Secret \S+|AccessDenied|SignatureDoesNotMatch|InvalidAccessKeyId",
        Cause.CREDENTIALS_REFUSED,
    ),
    (
        (
            r"dataset \"|pictures?\b.*(left|used|unreadable|rejected)|metadata\.parquet|training\.data|caption|quarantine|"
            r"nothing to train on|no dataset"
        ),
        Cause.DATA_UNUSABLE,
    ),
)
_PROGRAM: tuple[Row, ...] = tuple(
    (pattern, cause) for pattern, word in PROGRAM_ENDINGS for cause in Cause if cause.value == word
)
_BY_CAUSE = {
    Cause.PREFLIGHT_FAILED: _SAID,
    Cause.STORAGE_FAULT: _STORAGE,
    Cause.CONFIGURATION_ERROR: _CONFIGURATION,
    Cause.APPLICATION_ERROR: _PROGRAM,
    Cause.PEER_LOST: ((r"do not reach one another", Cause.NODE_CUT_OFF),),
}


def refined(cause: Cause, text: str) -> Cause:
    """A more precise cause than an exit code or a class tells, where the report's sentence has one."""
    return _of(text, _BY_CAUSE.get(cause, ())) or cause
