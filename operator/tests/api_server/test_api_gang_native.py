"""Kubernetes' own gangs on a real API server that serves them: one more, with the feature gate, on the same store.

No scheduler with the gate runs here: what is shown is that the server takes the PodGroup and keeps the pods' membership.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from gangs import JOBS, SETTINGS, Gang
from processes import Api, operator

from oarlock_local.patience import eventually

if TYPE_CHECKING:
    from oarlock_local.account import Account
    from oarlock_local.cluster import Cluster

pytestmark = pytest.mark.cluster
GROUPS = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups"


@pytest.fixture
def kubeconfig(control_plane: Cluster, api: Api, tmp_path: Path) -> Iterator[Path]:
    """The administrator's way to an API server with gangs, which lives as long as the test."""
    from oarlock_local.gang_server import gang_server  # noqa: PLC0415

    del api  # it has brought the CRD
    with gang_server(control_plane, tmp_path) as path:
        eventually(lambda: Api(path).find(JOBS), "TrainingJobs")
        yield path


def test_the_highest_version_that_is_served_makes_the_gang_and_its_group_goes_with_it(
    kubeconfig: Path, account: Account, tmp_path: Path
) -> None:
    api = Api(kubeconfig)
    as_operator = account.write_kubeconfig(tmp_path / "as-operator", like=kubeconfig)
    with operator(as_operator, tmp_path / "operator.log", *SETTINGS):
        gang = Gang(api, scheduling={})
        gang.wait_for_pods("1-0", "1-1")
        assert gang.status["resolved"]["gang"] == "Native", "Auto, where the cluster has it"
        (group,) = api.call("GET", f"{GROUPS}?labelSelector=oarlock.dev/job={gang.name}")["items"]
        assert group["spec"]["schedulingPolicy"] == {"gang": {"minCount": 2}}
        members = {pod["spec"]["schedulingGroup"]["podGroupName"] for pod in gang.pods().values()}
        assert members == {group["metadata"]["name"]}
        eventually(lambda: gang.condition("Degraded")["reason"] == "AsExpected" or None, "the first look")
        gang.run()
        for rank in (0, 1):
            gang.end(f"1-{rank}", 0)
        gang.wait_for_phase("Succeeded")
        path = f"{GROUPS}/{group['metadata']['name']}"
        eventually(
            lambda: (found := api.find(path)) is None or "deletionTimestamp" in found["metadata"], "the group to go"
        )
