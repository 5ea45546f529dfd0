"""A cluster of three real nodes with the CRD, the demo's inputs in a claim, and the operator running outside it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from oarlock_local.cluster import Cluster
from oarlock_local.demo.inputs import make_inputs
from tests.e2e.jobs import CLAIM, Jobs

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def output(local_cluster: Cluster) -> Path:
    """The folder of this machine that the jobs' claim leads to, with a small model and photographs in it."""
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": CLAIM},
        "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "10Gi"}}},
    }
    local_cluster.kubectl("apply", "-f", "-", stdin=json.dumps(claim))
    folder = local_cluster.volume(CLAIM)
    shutil.copytree(make_inputs(), folder, dirs_exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def jobs(local_cluster: Cluster, output: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jobs]:
    """Jobs on the cluster, with an operator outside it that reaches pods through the API server."""
    local_cluster.kubectl("apply", "--server-side", "-f", str(ROOT / "crds/trainingjobs.yaml"))
    local_cluster.kubectl("wait", "--for=condition=Established", "crd/trainingjobs.oarlock.dev", "--timeout=30s")
    log = tmp_path_factory.mktemp("operator") / "operator.log"
    command = [sys.executable, "-m", "oarlock_operator", "--kubeconfig", str(local_cluster.kubeconfig)]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("OARLOCK_")}
    with log.open("wb") as written:
        process = subprocess.Popen(
            [*command, "--port", "0", "--progress-seconds", "1"], stdout=written, stderr=written, env=environment
        )
    yield Jobs(local_cluster, output)
    alive = process.poll() is None
    process.send_signal(signal.SIGTERM)
    process.wait(timeout=20)
    assert alive, f"the operator ended by itself:\n{log.read_text()[-3000:]}"
