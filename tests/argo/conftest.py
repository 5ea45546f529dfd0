"""Three real nodes with the operator, a small model, and Argo's own controller.

Building Argo takes minutes, and so does each workflow: `make argo-test` sets OARLOCK_ARGO, and without it these tests are
skipped.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oarlock_local.api import ApiServer
from oarlock_local.argo import argo
from oarlock_local.binaries import HELM
from oarlock_local.build import built
from oarlock_local.cluster import Cluster
from oarlock_local.demo.inputs import make_inputs
from oarlock_local.demo.install import VALUES, install_operator, operators_account
from oarlock_local.demo.output import make_output
from oarlock_local.sources import SourceMissing
from tests.argo.install import install_argo
from tests.argo.workflows import ACCOUNT, ROOT, Workflows
from tests.e2e.jobs import Jobs

RIGHTS = {"argoWorkflows": {"serviceAccounts": [{"name": ACCOUNT, "namespace": "default"}]}}
"""The chart's values that give the workflows' ServiceAccount its rights."""
BASE = "/output/models/flux-tiny"


@pytest.fixture(scope="session")
def programs() -> Path:
    """The folder with Argo's programs."""
    if not os.environ.get("OARLOCK_ARGO"):
        pytest.skip("needs Argo's programs, which take minutes to build: run `make argo-test`")
    try:
        return argo()
    except SourceMissing as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def workflows(
    programs: Path, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Workflows]:
    """Argo, for a ServiceAccount with the chart's rights and no others."""
    cluster: Cluster = request.getfixturevalue("local_cluster")
    output = make_output(cluster, ROOT, make_inputs())
    shutil.copytree(output / "data/photos", output / "data/unseen")
    values: dict[str, Any] = {**VALUES, **RIGHTS}
    install_operator(cluster, ROOT, built(HELM), values=values)
    cluster.kubectl("create", "serviceaccount", ACCOUNT)
    install_argo(cluster, programs, tmp_path_factory.mktemp("argo"))
    with ApiServer(cluster.kubeconfig) as api:
        yield Workflows(cluster, Jobs(cluster, output, api), api, programs / "argo")
    assert operators_account(cluster, ROOT, built(HELM), values=values).complaint() == ""


@pytest.fixture(scope="session")
def finished(workflows: Workflows) -> str:
    """The name of a workflow of all three steps that has ended; its embeddings stay for others."""
    name = workflows.submit(nodes="2", steps="20", base=BASE)
    workflows.wait_for_end(name)
    return name
