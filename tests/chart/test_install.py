"""The chart with everything switched on by the real helm: an uninstall takes all away but the API and the jobs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from oarlock_local.api import ApiServer
from oarlock_local.cluster import Cluster
from oarlock_local.pytest_tiers import quick_first
from tests.chart.releases import OVER_KUBECTLS_API, Release
from tests.chart.rendering import EVERYTHING, NAMED

pytestmark = pytest.mark.cluster
CRD = "customresourcedefinition.apiextensions.k8s.io/trainingjobs.oarlock.dev"


@pytest.mark.parametrize(
    "version",
    [
        pytest.param("helm 4", marks=pytest.mark.smoke("is installed by a chart")),
        pytest.param("helm 3", marks=pytest.mark.deep),
    ],
)
def test_everything_comes_with_an_upgrade_and_an_uninstall_leaves_the_api_and_the_jobs_and_nothing_else(
    version: str, helm_programs: dict[str, Path], monitored: Cluster
) -> None:
    name = version.replace(" ", "-")
    release = Release(cluster=monitored, name=name, namespace=name)
    # Not the everything of others' clusters: its policy would hold for other tests' jobs, too.
    values = {**EVERYTHING, "admissionPolicy": {**EVERYTHING["admissionPolicy"], "enabled": False}}
    first = {**NAMED, "settings": {"LOG_LEVEL": "debug"}}
    release.install(helm_programs[version], first, *OVER_KUBECTLS_API[version])
    little = release.objects()
    assert {f"lease.coordination.k8s.io/{release.name}-operator", CRD} < little
    release.upgrade(helm_programs[version], values, "--reset-then-reuse-values")
    assert little < release.objects()
    log_level = "jsonpath={.spec.template.spec.containers[0].env[?(@.name=='OARLOCK_OPERATOR_LOG_LEVEL')].value}"
    operator = ("deployment", f"{release.name}-operator", "-n", release.namespace)
    assert monitored.kubectl("get", *operator, "-o", log_level) == "debug", "as it was, where nothing else is said"
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


@pytest.mark.parametrize("version", quick_first(["helm 4", "helm 3"]))
def test_a_lease_from_before_the_chart_made_it_is_taken_over_by_who_asks_for_that_and_goes_with_the_release(
    version: str, helm_programs: dict[str, Path], serving: Cluster
) -> None:
    name = f"taken-by-{version.replace(' ', '-')}"
    release = Release(cluster=serving, name=name, namespace=name)
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": f"{name}-operator", "namespace": name},
        "spec": {"holderIdentity": "an-operator", "leaseDurationSeconds": 15},
    }
    serving.kubectl("create", "namespace", name)
    serving.kubectl("create", "-f", "-", stdin=json.dumps(lease))
    values = {**NAMED, "crds": {"enabled": False}, "rbac": {"create": False, "aggregate": False}}
    refusal = release.refusal(helm_programs[version], values)
    assert f'Lease "{name}-operator"' in refusal
    assert "invalid ownership metadata" in refusal, "as docs/install.md has it"
    release.install(helm_programs[version], values, "--take-ownership")
    path = ("-o", "jsonpath={.spec.holderIdentity}")
    assert serving.kubectl("get", "lease", f"{name}-operator", "-n", name, *path) == "an-operator"
    release.uninstall(helm_programs[version])
    assert release.objects() == set()
