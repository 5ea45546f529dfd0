"""Fixtures: the API tier's control plane and operator process, and a pod's /status on a socket.

Operators have the rights that the chart gives them, with everything switched on. What one asks for beyond them is refused,
and fails the session at its end, whether or not a test has noticed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from gangs import SETTINGS
from hypothesis import HealthCheck, settings
from processes import ROOT, Api, api_with_crd, operator
from status_pod import Server, serving

from oarlock_operator.model.job_memory import JobMemory

if TYPE_CHECKING:
    from oarlock_local.account import Account
    from oarlock_local.cluster import Cluster

# A machine that is busy draws slowly, and that is no failure of what is tested.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

ALL_RIGHTS: dict[str, Any] = {
    "image": {"repository": "registry.example.com/oarlock/operator"},
    "trainerImage": "registry.example.com/oarlock/trainer:1",
    "gang": dict.fromkeys(("kueue", "volcano", "coscheduling", "kai", "native"), True),
}


@pytest.fixture(scope="session")
def api(control_plane: Cluster) -> Api:
    return api_with_crd(control_plane)


@pytest.fixture(scope="session")
def account(control_plane: Cluster) -> Iterator[Account]:
    """The ServiceAccount of all operators. At the end of the session, what it asked for was its right."""
    from oarlock_local.account import Account  # noqa: PLC0415 - only for those that need a cluster
    from oarlock_local.binaries import HELM  # noqa: PLC0415
    from oarlock_local.build import built  # noqa: PLC0415
    from oarlock_local.chart import render  # noqa: PLC0415
    from oarlock_local.errors import BuildError  # noqa: PLC0415

    try:
        program = built(HELM)
    except BuildError as error:
        pytest.skip(str(error))
    objects = render(ROOT / "charts/oarlock", program, release="oarlock", namespace="default", values=ALL_RIGHTS)
    account = Account.made(control_plane, objects)
    yield account
    assert account.complaint() == ""


@pytest.fixture(scope="session")
def as_operator(account: Account, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The operators' kubeconfig."""
    return account.write_kubeconfig(tmp_path_factory.mktemp("operator") / "kubeconfig")


@pytest.fixture
def with_operator(as_operator: Path, api: Api, tmp_path: Path) -> Iterator[Api]:
    with operator(as_operator, tmp_path / "operator.log", *SETTINGS):
        yield api


@pytest.fixture
def memory() -> JobMemory:
    """Of an operator that has just started."""
    return JobMemory()


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with serving() as playing:
        yield playing
