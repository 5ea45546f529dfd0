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
from oarlock_local.demo.install import VALUES, install_operator, operators_account
from oarlock_local.demo.output import make_output
from tests.e2e.jobs import Jobs

ROOT = Path(__file__).parents[2]
# All tests are one namespace, and what one of them cordons counts for an hour.
MANY_FAULTS = {
    **VALUES,
    "settings": {**VALUES["settings"], "CORDON_MAX_NODES": 50, "CORDON_NAMESPACE_MAX_NODES": 50},
    "dashboard": {"enabled": True},
}


@pytest.fixture(scope="session")
def output(local_cluster: Cluster) -> Path:
    """The folder of this machine that the jobs' claim leads to, with a small model and photographs in it."""
    return make_output(local_cluster, ROOT, make_inputs())


@pytest.fixture(scope="session")
def jobs(local_cluster: Cluster, output: Path) -> Iterator[Jobs]:
    """Jobs on the cluster, with the operator in it as a pod, as the chart installs it; at the end, no right was lacking."""
    install_operator(local_cluster, ROOT, built(HELM), values=MANY_FAULTS)
    with ApiServer(local_cluster.kubeconfig) as api:
        yield Jobs(local_cluster, output, api)
    assert operators_account(local_cluster, ROOT, built(HELM), values=MANY_FAULTS).complaint() == ""
