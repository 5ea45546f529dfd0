"""API servers for the examples."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from oarlock_local import definitions
from oarlock_local.crd import apply_crd
from oarlock_local.sources import SourceMissing
from tests.examples.argo_source import workflow_definition

if TYPE_CHECKING:
    from oarlock_local.cluster import Cluster

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def server(control_plane: Cluster) -> Cluster:
    """An API server that serves TrainingJobs."""
    apply_crd(control_plane, ROOT / "crds/trainingjobs.yaml")
    return control_plane


@pytest.fixture(scope="session")
def argo(server: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    """The same with Argo's Workflows, by Argo's own schema."""
    try:
        definition = workflow_definition()
    except SourceMissing as reason:
        pytest.skip(str(reason))
    return _serving(server, [definition], tmp_path_factory.mktemp("argo"))


@pytest.fixture(scope="session")
def kueue(server: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    """The same with the kinds of Kueue that people write, by Kueue's own schemas."""
    written = ("ClusterQueue", "LocalQueue", "ResourceFlavor")
    try:
        found = [each for each in definitions.kueue() if each["spec"]["names"]["kind"] in written]
    except SourceMissing as reason:
        pytest.skip(str(reason))
    return _serving(server, found, tmp_path_factory.mktemp("kueue"))


def _serving(server: Cluster, found: list[dict[str, Any]], folder: Path) -> Cluster:
    for number, definition in enumerate(found):
        path = folder / f"{number}.json"
        path.write_text(json.dumps(definition))
        apply_crd(server, path)
    return server
