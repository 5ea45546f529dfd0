"""Fixtures: the API tier's control plane and operator process, and a pod's /status on a socket."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from gangs import SETTINGS
from processes import Api, api_with_crd, operator
from status_pod import Server, serving

if TYPE_CHECKING:
    from oarlock_local.cluster import Cluster


@pytest.fixture(scope="session")
def api(control_plane: Cluster) -> Api:
    return api_with_crd(control_plane)


@pytest.fixture
def with_operator(control_plane: Cluster, api: Api, tmp_path: Path) -> Iterator[Api]:
    with operator(control_plane.kubeconfig, tmp_path / "operator.log", *SETTINGS):
        yield api


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with serving() as playing:
        yield playing
