"""The operator's image for arm64, emulated where the machine is none: it starts, leads, and makes pods.

Slow: it needs the image, and a kernel that knows an emulator (docs/images.md has the commands).
"""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from oarlock_local.cluster import Cluster
from oarlock_local.crd import apply_crd
from tests.images import builder
from tests.images.conftest import OPERATOR_IMAGE
from tests.images.dockerfile import ROOT

pytestmark = pytest.mark.timeout(1800)
IMAGE = OPERATOR_IMAGE.replace("/operator:", "/arm64/operator:")
SECONDS = 900
JOB = {
    "apiVersion": "oarlock.dev/v1alpha1",
    "kind": "TrainingJob",
    "metadata": {"name": "foreign"},
    "spec": {
        "nodes": 1,
        "gpusPerNode": 0,
        "output": {"persistentVolumeClaim": {"claimName": "training-output"}},
        "custom": {"command": ["true"]},
        "pod": {"image": "registry.example.com/mine:7"},
    },
}


@pytest.fixture(scope="module")
def arm64_image(builder_name: str) -> str:
    if not builder.is_built(builder_name, IMAGE):
        pytest.skip(f"needs {IMAGE}: docs/images.md says how it is built")
    return IMAGE


def test_the_operator_of_the_image_for_arm64_makes_a_jobs_pods(
    arm64_image: str, builder_name: str, control_plane: Cluster, tmp_path: Path, tell: Callable[[str], None]
) -> None:
    apply_crd(control_plane, ROOT / "crds/trainingjobs.yaml")
    control_plane.kubectl("apply", "-f", "-", stdin=json.dumps(JOB))
    # The image's user is nobody here, and the cluster's own file is root's.
    tmp_path.chmod(0o755)
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(control_plane.kubeconfig.read_text())
    kubeconfig.chmod(0o644)
    log = tmp_path / "log"
    arguments = ["--kubeconfig", str(kubeconfig), "--lease-namespace", "default", "--port", "0"]
    began = time.monotonic()
    with builder.running(builder_name, arm64_image, *arguments, mount=tmp_path, log=log) as process:
        while not (pods := control_plane.kubectl("get", "pods", "-o", "name").split()):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() - began < SECONDS, log.read_text()
            time.sleep(0.5)
    tell(f"{arm64_image}: a job's first pod {time.monotonic() - began:.1f} s after its start, on {platform.machine()}")
    assert pods[0].startswith("pod/foreign-")
