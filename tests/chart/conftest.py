"""The real helm, in both versions that people install charts with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from oarlock_local.binaries import HELM, HELM_3
from oarlock_local.build import built
from oarlock_local.crd import apply_crd
from oarlock_local.errors import BuildError
from oarlock_local.sources import GATEWAY_API, PROMETHEUS_OPERATOR, SourceMissing
from tests.chart.rendering import ROOT

if TYPE_CHECKING:
    from oarlock_local.cluster import Cluster


@pytest.fixture(scope="session")
def helm_program() -> Path:
    return built(HELM)


class Helms(dict[str, Path]):
    """The programs by version. Helm 3 is built when it is first asked for; who asks where that fails is skipped."""

    def __missing__(self, version: str) -> Path:
        assert version == "helm 3"
        try:
            self[version] = built(HELM_3)
        except BuildError as error:
            pytest.skip(str(error))
        return self[version]


@pytest.fixture(scope="session")
def helm_programs(helm_program: Path) -> dict[str, Path]:
    return Helms({"helm 4": helm_program})


@pytest.fixture(scope="session")
def serving(control_plane: Cluster) -> Cluster:
    """A control plane that serves TrainingJobs, with a namespace for the operator."""
    apply_crd(control_plane, ROOT / "crds/trainingjobs.yaml")
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "oarlock"}}
    control_plane.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(namespace))
    return control_plane


@pytest.fixture(scope="session")
def monitored(serving: Cluster) -> Cluster:
    """The control plane with the kinds of others that the chart makes: of Prometheus' operator, and of the Gateway API."""
    try:
        prometheus = PROMETHEUS_OPERATOR.fetch() / "example/prometheus-operator-crd"
        gateway = GATEWAY_API.fetch() / "config/crd/standard"
    except SourceMissing as error:
        pytest.skip(str(error))
    for kind in ("podmonitors", "servicemonitors", "prometheusrules"):
        apply_crd(serving, prometheus / f"monitoring.coreos.com_{kind}.yaml")
    apply_crd(serving, gateway / "gateway.networking.k8s.io_httproutes.yaml")
    return serving
