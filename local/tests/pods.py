"""Pods of the host userland, hardened as the operator's are."""

import json
import textwrap
from typing import Any

from oarlock_local import patience
from oarlock_local.cluster import Cluster


def python_pod(name: str, program: str, *, node: str | None = None, gpus: int = 0, claim: str | None = None) -> Any:
    """A pod that runs a Python program as uid 1000 with everything taken away; `claim` is mounted at /data."""
    limits = {"nvidia.com/gpu": gpus} if gpus else {}
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}] if claim else []
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"gang": "g"}},
        "spec": {
            "runtimeClassName": "host-userland",
            "hostname": name,
            "subdomain": "gang",
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": True,
            "nodeSelector": {"kubernetes.io/hostname": node} if node else {},
            "securityContext": {
                "runAsUser": 1000,
                "runAsGroup": 1000,
                "runAsNonRoot": True,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [
                {
                    "name": "main",
                    "image": "oarlock.local/host:1",
                    "command": ["python", "-c", textwrap.dedent(program)],
                    "securityContext": {
                        "allowPrivilegeEscalation": False,
                        "readOnlyRootFilesystem": True,
                        "capabilities": {"drop": ["ALL"]},
                    },
                    "resources": {"limits": limits},
                    "volumeMounts": [{"name": "data", "mountPath": "/data"}] if claim else [],
                }
            ],
            "volumes": volumes,
        },
    }


def apply(cluster: Cluster, *objects: Any) -> None:
    """Apply objects in one request each."""
    listed = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(listed))


def wait_for_phase(cluster: Cluster, pod: str, phase: str) -> None:
    """Wait until a pod is in that phase."""
    cluster.kubectl("wait", f"--for=jsonpath={{.status.phase}}={phase}", f"pod/{pod}", patience.KUBECTL)


def output(cluster: Cluster, pod: str) -> str:
    """What a pod printed; waits for its success first, and shows what it printed if there is none."""
    try:
        wait_for_phase(cluster, pod, "Succeeded")
    except Exception as error:
        error.add_note(cluster.kubectl("logs", pod))
        raise
    return cluster.kubectl("logs", pod)
