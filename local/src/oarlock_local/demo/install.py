"""The operator as a pod of a local cluster: as any cluster gets it, by kubectl alone or by the chart."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from oarlock_local.account import Account
from oarlock_local.chart import render
from oarlock_local.cluster import Cluster
from oarlock_local.crd import wait_until_served
from oarlock_local.errors import LocalError

RELEASE = "oarlock"
NAMESPACE = "oarlock"
VALUES: dict[str, Any] = {
    "image": {"repository": "oarlock.local/host", "tag": "1"},
    "trainerImage": "oarlock.local/host:1",
    "runtimeClassName": "host-userland",
    # Often, for a demo that is watched; the default spares the API server.
    "settings": {"PROGRESS_SECONDS": 1},
}


def apply_operator(cluster: Cluster, root: Path) -> None:
    """Apply deploy/local of the checkout `root`, and wait until the operator is ready and TrainingJobs can be made.

    The same as `install_operator` with VALUES, which a test holds it to; nothing has to be built for it.
    """
    cluster.kubectl("apply", "--server-side", "-k", str(root / "deploy/local"))
    cluster.kubectl("rollout", "status", f"deployment/{RELEASE}-operator", "-n", NAMESPACE, "--timeout=120s")
    wait_until_served(cluster, root / "crds/trainingjobs.yaml")


def install_operator(
    cluster: Cluster, root: Path, helm_program: Path, *, values: Mapping[str, Any] = MappingProxyType(VALUES)
) -> None:
    """Install the chart of the checkout `root`, and wait until the operator is ready and TrainingJobs can be made."""
    command = [str(helm_program), "--kubeconfig", str(cluster.kubeconfig), "install", RELEASE]
    command += [str(root / "charts/oarlock"), "--namespace", NAMESPACE, "--create-namespace"]
    # The API may be there from kubectl, or from another release: it stays when one is uninstalled.
    command += ["--take-ownership", "--force-conflicts"]
    result = subprocess.run(
        [*command, "--values", "-", "--wait", "--timeout", "120s"],
        input=json.dumps(dict(values)),
        check=False,
        capture_output=True,
        text=True,
    )
    if result.returncode != 0:
        raise LocalError(f"helm could not install charts/oarlock:\n{result.stderr[-2000:]}")
    wait_until_served(cluster, root / "crds/trainingjobs.yaml")


def operators_account(
    cluster: Cluster, root: Path, helm_program: Path, *, values: Mapping[str, Any] = MappingProxyType(VALUES)
) -> Account:
    """The ServiceAccount of the operator that `install_operator` installs with these values."""
    chart = root / "charts/oarlock"
    return Account.of(cluster, render(chart, helm_program, release=RELEASE, namespace=NAMESPACE, values=values))
