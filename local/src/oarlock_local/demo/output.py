"""The claim that the demo's job writes to, with the model and the photographs in it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from oarlock_local.cluster import Cluster

CLAIM = "training-output"


def make_output(cluster: Cluster, inputs: Path) -> Path:
    """Claim a shared volume, copy `inputs` into it, and return its folder on this machine."""
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": CLAIM},
        "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "10Gi"}}},
    }
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(claim))
    folder = cluster.volume(CLAIM)
    shutil.copytree(inputs, folder, dirs_exist_ok=True)
    return folder
