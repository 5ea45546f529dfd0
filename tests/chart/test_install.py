"""The chart with everything switched on by the real helm: an uninstall takes all away but the API and the jobs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from oarlock_local.api import ApiServer
from oarlock_local.cluster import Cluster
from tests.chart.releases import OVER_KUBECTLS_API, Release
from tests.chart.rendering import EVERYTHING

pytestmark = pytest.mark.cluster
CRD = "customresourcedefinition.apiextensions.k8s.io/trainingjobs.oarlock.dev"


@pytest.mark.parametrize("version", ["helm 4", "helm 3"])
def test_an_uninstall_leaves_the_api_and_the_jobs_and_nothing_else(
    version: str, helm_programs: dict[str, Path], monitored: Cluster
) -> None:
    release = Release(monitored, version.replace(" ", "-"))
    # Not the everything of others' clusters: its policy would hold for other tests' jobs, too.
    values = {**EVERYTHING, "admissionPolicy": {**EVERYTHING["admissionPolicy"], "enabled": False}}
    release.install(helm_programs[version], values, *OVER_KUBECTLS_API[version])
    there = release.objects()
    assert {f"lease.coordination.k8s.io/{release.name}-operator", CRD} < there
    job = {
        "apiVersion": "oarlock.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": f"kept-{release.name}", "namespace": "default"},
        "spec": {
            "nodes": 1,
            "suspend": True,
            "output": {"persistentVolumeClaim": {"claimName": "kept"}},
            "custom": {"command": ["true"]},
            "pod": {"image": "example.test/none"},
        },
    }
    monitored.kubectl("create", "-f", "-", stdin=json.dumps(job))
    release.uninstall(helm_programs[version])
    assert release.objects() == {CRD}
    with ApiServer(monitored.kubeconfig) as api:
        assert api.get(f"/apis/oarlock.dev/v1alpha1/namespaces/default/trainingjobs/kept-{release.name}")
