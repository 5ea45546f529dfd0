"""Volumes of a pod: the output, job.json, shared memory, and the few writable places of a read-only root.

job.json is an annotation of the pod itself: nothing else has to be made before the pods, or to be deleted after them.
"""

from __future__ import annotations

from typing import Any

from oarlock_api.contract.environment import CONFIG_PATH, RUN_DIRECTORY
from oarlock_api.contract.gang_key import KEY_FIELD
from oarlock_api.contract.names import JOB_FILE_ANNOTATION
from oarlock_api.output import Output
from oarlock_api.spec import TrainingJobSpec

OUTPUT, CONFIG, RUN, SHARED_MEMORY, TEMPORARY = "output", "oarlock-config", "oarlock-run", "shared-memory", "tmp"
_CONFIG_DIRECTORY, _, _CONFIG_FILE = CONFIG_PATH.rpartition("/")


def volumes(spec: TrainingJobSpec, *, key_secret: str = "") -> list[dict[str, Any]]:
    """Volumes of the pod, the job's own last. `key_secret`: the Secret with the gang's key, where it has one.

    Whoever the container runs as can read the key: nobody else sees its files, and all that run in it are of the gang.
    """
    shared_memory = {"medium": "Memory", "sizeLimit": spec.pod.shared_memory}
    return [
        {"name": OUTPUT, **output_source(spec.output)},
        {"name": CONFIG, "projected": {"sources": _told(key_secret)}},
        {"name": RUN, "emptyDir": {}},
        {"name": SHARED_MEMORY, "emptyDir": shared_memory},
        {"name": TEMPORARY, "emptyDir": {}},
        *(volume.to_manifest() for volume in spec.pod.volumes),
    ]


def mounts(spec: TrainingJobSpec) -> list[dict[str, Any]]:
    """Mounts of the trainer's container, the job's own last."""
    return [
        {"name": OUTPUT, "mountPath": spec.output.mount_path},
        {"name": CONFIG, "mountPath": _CONFIG_DIRECTORY, "readOnly": True},
        {"name": RUN, "mountPath": RUN_DIRECTORY},
        {"name": SHARED_MEMORY, "mountPath": "/dev/shm"},  # noqa: S108 - that is where NCCL and the loaders look
        {"name": TEMPORARY, "mountPath": "/tmp"},  # noqa: S108
        *(mount.to_manifest() for mount in spec.pod.volume_mounts),
    ]


def _told(key_secret: str) -> list[dict[str, Any]]:
    key = {"secret": {"name": key_secret, "items": [{"key": KEY_FIELD, "path": KEY_FIELD}]}}
    return [{"downwardAPI": {"items": [_job_file()]}}, *([key] if key_secret else [])]


def _job_file() -> dict[str, Any]:
    return {"path": _CONFIG_FILE, "fieldRef": {"fieldPath": f"metadata.annotations['{JOB_FILE_ANNOTATION}']"}}


def output_source(output: Output) -> dict[str, Any]:
    """The storage behind the output, as a volume's source."""
    if output.nfs:
        return {"nfs": {"server": output.nfs.server, "path": output.nfs.path}}
    if output.persistent_volume_claim:
        return {"persistentVolumeClaim": {"claimName": output.persistent_volume_claim.claim_name}}
    raise ValueError("the job names no output")
