"""Three real nodes with the operator, and gang systems' own programs beside them, one system at a time.

The programs take minutes to build: `make gangs-test` says by OARLOCK_GANGS that they are wanted, and without it these tests
are skipped.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from oarlock_local.api import ApiServer
from oarlock_local.binaries import HELM, KUEUE
from oarlock_local.build import built
from oarlock_local.cluster import Cluster
from oarlock_local.demo.inputs import make_inputs
from oarlock_local.demo.install import VALUES, install_operator, operators_account
from oarlock_local.demo.output import make_output
from oarlock_operator.process.settings import DEFAULT_TRAINER_IMAGE
from tests.e2e.jobs import Jobs
from tests.gangs.coscheduling import running_coscheduling
from tests.gangs.kueue import running_kueue
from tests.gangs.volcano import Volcano, running_volcano

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def jobs(request: pytest.FixtureRequest) -> Iterator[Jobs]:
    """Jobs on a cluster whose operator may make groups of the systems that are tested here."""
    if not os.environ.get("OARLOCK_GANGS"):
        pytest.skip("needs the gang systems' own programs: run `make gangs-test`")
    cluster: Cluster = request.getfixturevalue("local_cluster")
    cluster.tag(DEFAULT_TRAINER_IMAGE)
    values = {**VALUES, "gang": dict.fromkeys(("kueue", "volcano", "coscheduling"), True)}
    install_operator(cluster, ROOT, built(HELM), values=values)
    output = make_output(cluster, ROOT, make_inputs())
    with ApiServer(cluster.kubeconfig) as api:
        yield Jobs(cluster, output, api)
    assert operators_account(cluster, ROOT, built(HELM), values=values).complaint() == ""


@pytest.fixture(scope="module")
def queues(jobs: Jobs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jobs]:
    """Kueue runs, with a queue that has room for four GPUs."""
    with running_kueue(jobs.cluster, built(KUEUE), tmp_path_factory.mktemp("kueue")):
        jobs.cluster.kubectl("apply", "-f", str(HERE / "kueue.yaml"))
        yield jobs


@pytest.fixture(scope="module")
def volcano(jobs: Jobs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Volcano]:
    """Volcano runs, with a queue that has room for four GPUs."""
    with running_volcano(jobs.cluster, tmp_path_factory.mktemp("volcano")) as volcano:
        jobs.cluster.kubectl("apply", "-f", str(HERE / "volcano.yaml"))
        yield volcano


@pytest.fixture(scope="module")
def coscheduling(jobs: Jobs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The scheduler with the plugin Coscheduling runs."""
    with running_coscheduling(jobs.cluster, tmp_path_factory.mktemp("coscheduling")):
        yield
