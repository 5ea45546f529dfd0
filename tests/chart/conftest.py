"""The real helm, in both versions that people install charts with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from oarlock_local.build import helm, helm3
from oarlock_local.crd import apply_crd
from tests.chart.rendering import ROOT

if TYPE_CHECKING:
    from oarlock_local.cluster import Cluster


@pytest.fixture(scope="session")
def helm_program() -> Path:
    return helm()


@pytest.fixture(scope="session")
def helm_programs(helm_program: Path) -> dict[str, Path]:
    return {"helm 4": helm_program, "helm 3": helm3()}


@pytest.fixture(scope="session")
def serving(control_plane: Cluster) -> Cluster:
    """A control plane that serves TrainingJobs, with a namespace for the operator."""
    apply_crd(control_plane, ROOT / "crds/trainingjobs.yaml")
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "oarlock"}}
    control_plane.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(namespace))
    return control_plane
