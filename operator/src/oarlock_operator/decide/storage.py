"""Storage: what stands between a pod and its volumes, and what mends it.

A claim that is missing or unbound is told by the scheduler, a mount that fails by the kubelet, an output that cannot be
written by the pod's own checks and by the ranks. The first two come before any process of ours runs, so the remedy can
only be said here. The texts that are looked for are those of Kubernetes and of mount.nfs(8).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from oarlock_operator.model.observation import Pod

_MOUNT = re.compile(r"^(FailedMount|FailedAttachVolume|FailedMapVolume): ")
_CLAIM = re.compile(r"persistentvolumeclaim", re.IGNORECASE)
_RESTRICTED = 'restricted volume type "nfs"'
_CLAIM_INSTEAD = (
    "The namespace takes NFS through a claim only: spec.output.persistentVolumeClaim in a new job, and a volume as in "
    "examples/nfs-volume.yaml."
)
_CLAIM_REMEDIES = (
    ("not found", "Make the claim in the job's namespace, or correct spec.output.persistentVolumeClaim.claimName."),
    (
        "unbound",
        (
            "`kubectl describe pvc` says why it is not bound: its class must exist, give ReadWriteMany, and have a "
            "provisioner that runs; without a class, a PersistentVolume must fit it."
        ),
    ),
)
_MOUNT_REMEDIES = (
    (
        "applyFSGroup failed",
        (
            "The kubelet may not give the volume's files to the pod's group: the server squashes root. There, give the "
            "directory the group of spec.pod.securityContext.fsGroup (1000) and the mode 2775: then nothing is to be changed."
        ),
    ),
    (
        "helper program|unknown filesystem type|mount.nfs: not found",
        "The node has no NFS client: install nfs-common (Debian, Ubuntu) or nfs-utils (RHEL) on every node.",
    ),
    (
        "access denied by server|Operation not permitted",
        (
            "The server does not export this path to this node: `exportfs -v` on the server must show the node's address and "
            "the path."
        ),
    ),
    (
        "[Pp]rotocol not supported|version or transport protocol is not supported",
        (
            "Server and node share no NFS version: set nfsvers in the volume's mountOptions or in the node's "
            "/etc/nfsmount.conf."
        ),
    ),
    (
        "resolve server|Name or service not known",
        "The node itself must know the server's name, a Service's name does not do: give an address.",
    ),
    (
        "Connection timed out|No route to host|Connection refused|Network is unreachable",
        (
            "The node does not reach the server: it must run, and TCP port 2049 be open between them (for NFS 3 also those "
            "of rpcbind, mountd and statd)."
        ),
    ),
    ("No such file or directory", "The server has no such path: compare the volume's path with `exportfs -v`."),
    (
        "[Ss]tale file handle",
        "The export was replaced while it was mounted: unmount it on the node (`umount -f`), or restart the node.",
    ),
    ("incorrect mount option|[Ii]nvalid argument", "Correct the volume's mountOptions."),
)
"""What is found in a kubelet's words -> what mends it. The first that is found counts."""


def volume_trouble(pods: Iterable[Pod], hindrance: str) -> str:
    """What keeps pods from their volumes, where, and what to do; empty where nothing does.

    `hindrance`: why the API server does not take the pods.
    """
    if _RESTRICTED in hindrance:
        return f"{hindrance[:1536]}. {_CLAIM_INSTEAD}"
    waiting = [pod for pod in pods if pod.obstacle and not pod.started and not pod.stopped]
    mounts = [pod for pod in waiting if pod.scheduled and _MOUNT.match(pod.obstacle)]
    claims = [pod for pod in waiting if not pod.scheduled and _CLAIM.search(pod.obstacle)]
    # A claim keeps all pods waiting with the same words; a mount that fails can be one node's own.
    words = sorted({f"{pod.name} on {pod.node}: {pod.obstacle}" for pod in mounts}) or sorted(
        {pod.obstacle for pod in claims}
    )
    if not words:
        return ""
    said = "; ".join(words[:3])[:1536]
    remedy = _remedy(said, _MOUNT_REMEDIES if mounts else _CLAIM_REMEDIES)
    return f"{said}. {remedy}" if remedy else said


def _remedy(said: str, known: tuple[tuple[str, str], ...]) -> str:
    return next((remedy for pattern, remedy in known if re.search(pattern, said)), "")
