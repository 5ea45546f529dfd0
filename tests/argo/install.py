"""Argo Workflows on a local cluster: the manifests of its release, and its programs as the images that they name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from oarlock_local import patience
from oarlock_local.cluster import Cluster
from oarlock_local.crd import apply_crd
from oarlock_local.image import write_programs
from oarlock_local.sources import ARGO_WORKFLOWS

NAMESPACE = "argo"
IMAGES = {program: f"quay.io/argoproj/{program}" for program in ("workflow-controller", "argoexec")}
USER = 8737
"""Whom Argo's own images run as."""
SERVER = "argo-server"
"""Argo's pages, which no workflow needs."""
SETTINGS = (
    # How long the outputs of a killed pod are waited for before its step is tried again: ten minutes by default.
    "TASK_RESULT_TIMEOUT_DURATION=5s",
    # A deleted pod stays until its end was seen. Otherwise it is chance whether Argo calls it failed or gone.
    "ARGO_POD_STATUS_CAPTURE_FINALIZER=true",
)
"""Of Argo's controller, in its environment."""


def install_argo(cluster: Cluster, programs: Path, folder: Path) -> None:
    """Install Argo's controller and wait until it runs; `folder` is for the archive of its images on the way."""
    archive = folder / "argo.tar"
    images = {f"{image}:{ARGO_WORKFLOWS.version}": programs / name for name, image in IMAGES.items()}
    write_programs(archive, images, user=USER)
    cluster.load(archive)
    archive.unlink()
    manifests = ARGO_WORKFLOWS.fetch() / "manifests"
    for definition in sorted((manifests / "base/crds/minimal").glob("argoproj.io_*.yaml")):
        apply_crd(cluster, definition)
    cluster.kubectl("create", "namespace", NAMESPACE)
    cluster.apply(_of_the_release(cluster.kubectl("kustomize", str(manifests / "cluster-install-no-crds"))))
    cluster.kubectl("set", "env", "deployment/workflow-controller", "-n", NAMESPACE, *SETTINGS)
    cluster.kubectl("rollout", "status", "deployment/workflow-controller", "-n", NAMESPACE, patience.KUBECTL)


def _of_the_release(text: str) -> list[dict[str, Any]]:
    """The objects as a release has them: its version is put in the place of `latest` when it is made."""
    objects = yaml.load_all(text.replace(":latest", f":{ARGO_WORKFLOWS.version}"), yaml.CSafeLoader)
    return [each for each in objects if SERVER not in each["metadata"]["name"]]
