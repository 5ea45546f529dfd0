"""The claim that the demo's job writes to, with the model and the photographs in it."""

from __future__ import annotations

import shutil
from pathlib import Path

from oarlock_local.cluster import Cluster

CLAIM = "training-output"
"""The name in examples/local-output.yaml and examples/trainingjob.yaml."""


def make_output(cluster: Cluster, root: Path, inputs: Path) -> Path:
    """Claim a shared volume as the checkout `root` says, copy `inputs` into it, and return its folder on this machine."""
    cluster.kubectl("apply", "-f", str(root / "examples/local-output.yaml"))
    folder = cluster.volume(CLAIM)
    shutil.copytree(inputs, folder, dirs_exist_ok=True)
    return folder
