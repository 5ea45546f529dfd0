"""The chart on a real API server: every object is taken, with everything switched on, and an uninstall takes all away.

The API server's own dry run with strict validation stands where others use kubeconform: it knows every kind of its version
and of the definitions given to it, their defaults, and the rules that no schema can tell.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from oarlock_local.api import ApiServer
from oarlock_local.cluster import Cluster
from oarlock_local.crd import apply_crd
from tests.chart.releases import OVER_KUBECTLS_API, Release
from tests.chart.rendering import EVERYTHING, render

pytestmark = pytest.mark.cluster
CRD = "customresourcedefinition.apiextensions.k8s.io/trainingjobs.oarlock.dev"
MONITORING = Path(__file__).parent / "prometheus-operator"


@pytest.fixture(scope="session")
def monitored(serving: Cluster) -> Cluster:
    """The control plane with the kinds of Prometheus' operator."""
    if shutil.which("go") is None:
        pytest.skip("go fetches the definitions of Prometheus' operator: install it")
    module = next(line.split()[1:] for line in (MONITORING / "go.mod").read_text().splitlines() if "require" in line)
    command = ["go", "mod", "download", "-json", "@".join(module)]
    try:
        found = subprocess.run(command, cwd=MONITORING, check=False, capture_output=True, text=True, timeout=120)
    except subprocess.TimeoutExpired:
        pytest.skip(f"{' '.join(command)} does not end here")
    if found.returncode != 0:
        pytest.skip(f"{' '.join(command)} does not work here: {found.stdout}{found.stderr}")
    folder = Path(json.loads(found.stdout)["Dir"]) / "example/prometheus-operator-crd"
    for kind in ("podmonitors", "servicemonitors", "prometheusrules"):
        apply_crd(serving, folder / f"monitoring.coreos.com_{kind}.yaml")
    return serving


@pytest.mark.parametrize("monitor", ["PodMonitor", "ServiceMonitor"])
def test_every_object_of_the_chart_is_one_that_the_api_server_takes_to_the_letter(
    monitor: str, helm_program: Path, monitored: Cluster
) -> None:
    values = {**EVERYTHING, "monitoring": {**EVERYTHING["monitoring"], "operator": monitor}}
    objects = [item for item in render(helm_program, values) if item["kind"] != "CustomResourceDefinition"]
    answer = monitored.kubectl(
        *("apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-"),
        stdin=yaml.dump_all(objects, Dumper=yaml.CSafeDumper),
    )
    assert len(answer.splitlines()) == len(objects)


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
