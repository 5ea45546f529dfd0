"""The operator as a pod of a local cluster, by the chart that any cluster gets."""

from __future__ import annotations

import subprocess
from pathlib import Path

from oarlock_local.cluster import Cluster
from oarlock_local.crd import apply_crd
from oarlock_local.errors import LocalError

NAMESPACE = "oarlock"
VALUES = {
    "image.repository": "oarlock.local/host",
    "image.tag": "1",
    "runtimeClassName": "host-userland",
    "cordon": "true",
    # Often, for a demo that is watched; the default spares the API server.
    "settings.PROGRESS_SECONDS": "1",
}


def install_operator(cluster: Cluster, root: Path, helm_program: Path) -> None:
    """Apply the CRD and the rendered chart of the checkout `root`, and wait until the operator is ready."""
    apply_crd(cluster, root / "crds/trainingjobs.yaml")
    cluster.kubectl("create", "namespace", NAMESPACE)
    sets = [part for key, value in VALUES.items() for part in ("--set-string", f"{key}={value}")]
    rendered = subprocess.run(
        [str(helm_program), "template", "oarlock", str(root / "charts/oarlock"), "--namespace", NAMESPACE, *sets],
        check=False,
        capture_output=True,
        text=True,
    )
    if rendered.returncode != 0:
        raise LocalError(f"helm could not render charts/oarlock:\n{rendered.stderr[-2000:]}")
    cluster.kubectl("apply", "--server-side", "-f", "-", stdin=rendered.stdout)
    cluster.kubectl("rollout", "status", "deployment/oarlock-operator", "-n", NAMESPACE, "--timeout=90s")
