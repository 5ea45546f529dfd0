"""Fixtures: the API tier's control plane and operator process, and a pod's /status on a socket.

Operators have the rights that the chart gives them, with everything switched on. What one asks for beyond them is refused,
and fails the session at its end, whether or not a test has noticed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from gangs import SETTINGS
from hypothesis import HealthCheck, settings
from processes import LOGS, ROOT, Api, Resident, api_with_crd
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


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that fails says what the operators that ran beside it said last."""
    report = yield
    if report.failed:
        report.sections += [(f"the end of {log}", log.read_text(errors="replace")[-6000:]) for log in LOGS]
    return report


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
def operators_kubeconfig(account: Account, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the operators' account."""
    return account.write_kubeconfig(tmp_path_factory.mktemp("operator") / "kubeconfig")


@pytest.fixture(scope="session")
def resident(operators_kubeconfig: Path, api: Api, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Resident]:  # noqa: ARG001 - the CRD must be there
    found = Resident(operators_kubeconfig, tmp_path_factory.mktemp("resident") / "operator.log", *SETTINGS)
    yield found
    found.stop()


@pytest.fixture
def as_operator(operators_kubeconfig: Path, resident: Resident) -> Path:
    """The operators' kubeconfig, for a test that runs its own and is disturbed by none."""
    resident.stop()
    return operators_kubeconfig


@pytest.fixture
def with_operator(resident: Resident, api: Api) -> Iterator[Api]:
    """The API, with an operator at work that other tests had before."""
    resident.start()
    yield api
    assert resident.lives


@pytest.fixture
def memory() -> JobMemory:
    """Of an operator that has just started."""
    return JobMemory()


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with serving() as playing:
        yield playing
