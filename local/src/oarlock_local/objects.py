"""The API objects that every cluster with nodes has from the start, as files of an ordinary cluster's set-up would be.

A runtime class for pods that run this machine's programs, a storage class `shared` with volumes to be claimed by
many nodes at once, and the GPUs that the nodes advertise.
"""

import os
from typing import Any

from oarlock_local.api import ApiServer
from oarlock_local.image import USERLAND_UID
from oarlock_local.node_config import USERLAND_RUNTIME
from oarlock_local.spec import ClusterSpec

STORAGE_CLASS = "shared"
VOLUMES = 32
GPU_RESOURCE = "nvidia.com/gpu"


def create_objects(api: ApiServer, spec: ClusterSpec) -> None:
    """Create them; those that are there already stay."""
    runtime_class = {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": USERLAND_RUNTIME},
        "handler": USERLAND_RUNTIME,
    }
    api.create("/apis/node.k8s.io/v1/runtimeclasses", runtime_class)
    storage_class = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": STORAGE_CLASS, "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "Immediate",
    }
    api.create("/apis/storage.k8s.io/v1/storageclasses", storage_class)
    for number in range(1, VOLUMES + 1):
        api.create("/api/v1/persistentvolumes", _volume(spec, f"{STORAGE_CLASS}-{number}"))


def advertise_gpus(api: ApiServer, node: str, count: int) -> None:
    """Have a node say that it has GPUs: without a device plugin of that name the kubelet keeps what we write."""
    amounts = {GPU_RESOURCE: str(count)}
    api.merge(f"/api/v1/nodes/{node}/status", {"status": {"capacity": amounts, "allocatable": amounts}})


def _volume(spec: ClusterSpec, name: str) -> dict[str, Any]:
    path = spec.folder.volumes / name
    path.mkdir(parents=True, exist_ok=True)
    os.chown(path, USERLAND_UID, USERLAND_UID)
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "storageClassName": STORAGE_CLASS,
            "capacity": {"storage": "100Gi"},
            "accessModes": ["ReadWriteMany", "ReadWriteOnce", "ReadOnlyMany"],
            "persistentVolumeReclaimPolicy": "Retain",
            "hostPath": {"path": str(path), "type": "Directory"},
        },
    }
