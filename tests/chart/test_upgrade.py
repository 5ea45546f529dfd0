"""Real nodes: a release of the first chart by helm 3 becomes one of this chart by helm 4, beside a job that runs.

The chart is the first one, from git. The operator in it is this checkout's, which asks for more than it did then.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from oarlock_local.cluster import Cluster
from oarlock_local.crd import apply_crd
from oarlock_local.patience import eventually
from tests.chart.first_chart import NoEarlierChart, first_chart
from tests.chart.releases import Release
from tests.chart.rendering import ROOT

pytestmark = [pytest.mark.nodes, pytest.mark.timeout(600)]
NAMESPACE = "upgraded"
TEAM = "upgraded-team"
NAMES = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM}}
CLAIM = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "output", "namespace": TEAM},
    "spec": {
        "accessModes": ["ReadWriteMany"],
        "storageClassName": "shared",
        "resources": {"requests": {"storage": "1Gi"}},
    },
}
JOB: dict[str, Any] = {
    "apiVersion": "oarlock.dev/v1alpha1",
    "kind": "TrainingJob",
    "metadata": {"name": "steady", "namespace": TEAM},
    "spec": {
        "nodes": 2,
        "gpusPerNode": 0,
        "output": {"persistentVolumeClaim": {"claimName": "output"}, "minFree": "1Mi"},
        "custom": {"command": ["sleep"], "args": ["3600"]},
        "pod": {"image": "oarlock.local/host:1", "runtimeClassName": "host-userland", "sharedMemory": "16Mi"},
    },
}
VALUES: dict[str, Any] = {
    "image": {"repository": "oarlock.local/host", "tag": "1"},
    "trainerImage": "oarlock.local/host:1",
    "runtimeClassName": "host-userland",
    # Beside an operator of other tests, which works everywhere.
    "namespaces": [TEAM],
    "settings": {"PROGRESS_SECONDS": 1},
}


@pytest.fixture
def earlier(tmp_path: Path) -> Path:
    try:
        return first_chart(tmp_path)
    except NoEarlierChart as error:
        pytest.skip(str(error))


def test_an_upgrade_from_the_first_chart_by_helm_3_to_this_one_by_helm_4_does_not_disturb_a_job_that_runs(
    earlier: Path, helm_programs: dict[str, Path], local_cluster: Cluster
) -> None:
    # The first chart gave the right to a Lease of one name only.
    cluster, release = local_cluster, Release(cluster=local_cluster, name="oarlock", namespace=NAMESPACE)
    others = release.objects()
    apply_crd(cluster, ROOT / "crds/trainingjobs.yaml")
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(NAMES))
    release.install(helm_programs["helm 3"], VALUES, "--wait", "--timeout", "120s", chart=earlier)
    # Rights that it asks for in its work since then, as an administrator would add them.
    cluster.kubectl("create", "role", "since", "-n", TEAM, "--verb=list", "--resource=services,events")
    account = f"--serviceaccount={NAMESPACE}:oarlock-operator"
    cluster.kubectl("create", "rolebinding", "since", "-n", TEAM, "--role=since", account)
    for item in (CLAIM, JOB):
        cluster.kubectl("apply", "-f", "-", stdin=json.dumps(item))

    def job() -> dict[str, Any]:
        found: dict[str, Any] = json.loads(cluster.kubectl("get", "trainingjob", "steady", "-n", TEAM, "-o", "json"))
        return found.get("status") or {}

    def ready_pods() -> dict[str, str]:
        pods = json.loads(cluster.kubectl("get", "pods", "-n", TEAM, "-l", "oarlock.dev/job=steady", "-o", "json"))
        return {
            pod["metadata"]["name"]: pod["metadata"]["uid"]
            for pod in pods["items"]
            if any((c["type"], c["status"]) == ("Ready", "True") for c in pod["status"].get("conditions", []))
        }

    def leader() -> str:
        path = "jsonpath={.spec.holderIdentity}"
        return cluster.kubectl("get", "lease", "oarlock-operator", "-n", NAMESPACE, "-o", path)

    def metrics_of(identity: str) -> str:
        pod = identity.rpartition("-")[0]
        return cluster.kubectl("get", "--raw", f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}:8080/proxy/metrics")

    eventually(lambda: len(ready_pods()) == 2, "the gang")
    eventually(lambda: job().get("phase") == "Running", "the job to run")
    pods, first = ready_pods(), leader()
    # A setting of the new release, so that its operator is another one.
    after = {**VALUES, "settings": {"PROGRESS_SECONDS": 2}}
    # The API came by kubectl, the Lease from the operator itself.
    assert "invalid ownership metadata" in release.refusal(helm_programs["helm 4"], after)
    cluster.kubectl("delete", "role,rolebinding", "since", "-n", TEAM)
    # A release of helm 3 stays one that is merged by the client: there are no conflicts to force.
    release.upgrade(helm_programs["helm 4"], after, "--take-ownership", "--wait", "--timeout", "120s")
    eventually(lambda: leader() not in ("", first), "the next leader")
    eventually(lambda: re.search(r'reconciles_total{result="ok"} [1-9]', metrics_of(leader())), "its look at the job")
    status = job()
    assert (status["phase"], status["attempt"], status["restartCount"]) == ("Running", 1, 0)
    assert ready_pods() == pods, "the same pods"
    release.uninstall(helm_programs["helm 4"])
    # The key stays, so that an operator that comes again can still ask the gangs that train.
    kept = {"customresourcedefinition.apiextensions.k8s.io/trainingjobs.oarlock.dev", "secret/oarlock-operator-key"}
    assert release.objects() - others <= kept
    assert ready_pods() == pods, "who is trained for goes on, though nobody would start it again"
    cluster.kubectl("delete", "trainingjob", "steady", "-n", TEAM, "--wait=false")
    cluster.kubectl("delete", "namespace", TEAM, NAMESPACE, "--wait=false")
