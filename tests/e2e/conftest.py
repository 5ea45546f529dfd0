"""A cluster of three real nodes with the CRD, the demo's inputs in a claim, and the operator as a pod."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from oarlock_local.api import ApiServer
from oarlock_local.binaries import HELM
from oarlock_local.build import built
from oarlock_local.cluster import Cluster
from oarlock_local.demo.inputs import make_inputs
from oarlock_local.demo.install import NAMESPACE, VALUES, install_operator, operators_account
from oarlock_local.demo.output import CLAIM, make_output
from tests.e2e.jobs import Jobs

ROOT = Path(__file__).parents[2]
# All tests are one namespace, and what one of them cordons counts for an hour.
MANY_FAULTS = {
    **VALUES,
    "settings": {**VALUES["settings"], "CORDON_MAX_NODES": 50, "CORDON_NAMESPACE_MAX_NODES": 50},
    "dashboard": {"enabled": True},
}
WITH_OUTPUT = {
    **MANY_FAULTS,
    "dashboard": {
        "enabled": True,
        "outputs": [{"namespace": "default", "claimName": CLAIM, "mountClaim": CLAIM}],
    },
}


@pytest.fixture(scope="session")
def output(local_cluster: Cluster) -> Path:
    """The folder of this machine that the jobs' claim leads to, with a small model and photographs in it."""
    return make_output(local_cluster, ROOT, make_inputs())


@pytest.fixture(scope="session")
def jobs(local_cluster: Cluster, output: Path) -> Iterator[Jobs]:
    """Jobs on the cluster, with the operator in it as a pod, as the chart installs it; at the end, no right was lacking."""
    claim_again(local_cluster, output)
    install_operator(local_cluster, ROOT, built(HELM), values=WITH_OUTPUT)
    with ApiServer(local_cluster.kubeconfig) as api:
        yield Jobs(local_cluster, output, api)
    assert operators_account(local_cluster, ROOT, built(HELM), values=WITH_OUTPUT).complaint() == ""


def claim_again(cluster: Cluster, output: Path) -> None:
    """A claim of the operator's namespace on the storage of the jobs' claim, as who mounts outputs for the page makes one."""
    storage = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"{NAMESPACE}-{CLAIM}"},
        "spec": {
            **storage,
            "capacity": {"storage": "1Gi"},
            "claimRef": {"namespace": NAMESPACE, "name": CLAIM},
            "hostPath": {"path": str(output)},
        },
    }
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": CLAIM, "namespace": NAMESPACE},
        "spec": {
            **storage,
            "resources": {"requests": {"storage": "1Gi"}},
            "volumeName": f"{NAMESPACE}-{CLAIM}",
        },
    }
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    cluster.apply((namespace, volume, claim))
