"""Three real nodes with the operator and Kueue's own controller.

The program takes minutes to build: `make kueue-test` says by OARLOCK_KUEUE that it is wanted, and without it these tests are
skipped.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from oarlock_local.api import ApiServer
from oarlock_local.build import helm, kueue
from oarlock_local.cluster import Cluster
from oarlock_local.demo.inputs import make_inputs
from oarlock_local.demo.install import VALUES, install_operator, operators_account
from oarlock_local.demo.output import make_output
from oarlock_operator.settings import DEFAULT_TRAINER_IMAGE
from tests.e2e.jobs import Jobs
from tests.kueue.controller import running_kueue

ROOT = Path(__file__).parents[2]
QUEUES = Path(__file__).parent / "queues.yaml"


@pytest.fixture(scope="session")
def queues(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jobs]:
    """Jobs on a cluster where Kueue runs, with a queue that has room for four GPUs."""
    if not os.environ.get("OARLOCK_KUEUE"):
        pytest.skip("needs Kueue's controller: run `make kueue-test`")
    program = kueue()
    cluster: Cluster = request.getfixturevalue("local_cluster")
    cluster.tag(DEFAULT_TRAINER_IMAGE)
    with running_kueue(cluster, program, tmp_path_factory.mktemp("kueue")):
        cluster.kubectl("apply", "-f", str(QUEUES))
        values = {**VALUES, "gang": {"kueue": True}}
        install_operator(cluster, ROOT, helm(), values=values)
        output = make_output(cluster, ROOT, make_inputs())
        with ApiServer(cluster.kubeconfig) as api:
            yield Jobs(cluster, output, api)
        assert operators_account(cluster, ROOT, helm(), values=values).complaint() == ""
