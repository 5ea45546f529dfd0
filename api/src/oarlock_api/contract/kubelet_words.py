"""What a kubelet and its container runtime call the end of a pod or a container that they cannot, or will not, run.

From the sources of Kubernetes 1.36 (below pkg/kubelet) and containerd 2.4 (internal/cri). Operator and client go
by this one table.
"""

from __future__ import annotations

REJECTED = "Pod was rejected: "
"""How kubelet.go's rejectPod begins its words for a pod that it does not admit, whatever the reason."""
NEVER_RAN = frozenset({"StartError", "ContainerCannotRun"})
"""Reasons of a container that its runtime could not start; of any other, the words are those of the program itself."""
_NOBODY_KNOWS = {
    "ContainerStatusUnknown": None,  # status_manager.go, kubelet_pods.go: the container is nowhere; the code 137 is made up
    "Unknown": 255,  # containerd's recovery after its own end, or the node's: internal/cri/server/restart.go
}
"""Reason -> exit code, None for any, of containers whose runtime has lost sight of them."""


def nobody_knows(reason: str, code: int | None) -> bool:
    """Whether a container's end was made up by who only saw that it is there no more, as after its node's restart."""
    return code is not None and reason in _NOBODY_KNOWS and _NOBODY_KNOWS[reason] in (None, code)
