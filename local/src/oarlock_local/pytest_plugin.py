"""Fixtures for tests against real clusters and in a real browser; pytest loads them wherever this package is installed.

A cluster lasts for the session and dies with the test process, however that ends; or OARLOCK_TEST_CLUSTERS names a folder
with clusters that whoever started the tests keeps for them. Where the machine cannot run one, its tests are skipped with the
reason. A browser is missing only where nobody installed it: there its tests fail and say so.
"""

# ruff: noqa: PLC0415 - pytest loads this in every run; only those that need a cluster shall pay for its imports

import os
import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from oarlock_local.cluster import Cluster


pytest_plugins = ("oarlock_local.pytest_tiers", "oarlock_local.pytest_records")
SHARED = "OARLOCK_TEST_CLUSTERS"


@pytest.hookimpl(tryfirst=True)  # xdist reads the groups in the same hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with tests of nodes come first, then those of control planes: they take the longest.

    So `pytest -n 2 --dist loadgroup --no-loadscope-reorder` ends with short ones, and no worker waits for another.
    """
    places: dict[Path, int] = {}
    for item in items:
        places[item.path] = min(_place(item), places.get(item.path, _PLACES))
    items.sort(key=lambda item: places[item.path])
    for item in items:
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(str(item.path)))


_PLACES = 2


def _place(item: pytest.Item) -> int:
    # Not before pytest itself imports that plugin: it rewrites the assertions of plugins as it imports them.
    from oarlock_local.pytest_tiers import needs_control_plane, needs_nodes

    return 0 if needs_nodes(item) else 1 if needs_control_plane(item) else _PLACES


@pytest.fixture
def interruptible() -> "Iterator[None]":
    """Children get Ctrl-C as from a terminal, also where the tests run with it ignored, as after `nohup ... &`."""
    # A handler of this process becomes the default action in its children; only being ignored is inherited.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def control_plane_in(state: Path) -> "AbstractContextManager[Cluster]":
    """A control plane without nodes, with guarded owners: what operators may not do on the strictest clusters fails here."""
    from oarlock_local.cluster import running

    return running("control-plane", nodes=0, guard_owners=True, state=state)


def nodes_in(state: Path, root: Path) -> "AbstractContextManager[Cluster]":
    """Three real nodes that advertise two GPUs each; pods see this Python, and the repository at `root`."""
    from oarlock_local.cluster import running
    from oarlock_local.launch import default_shares

    return running("nodes", nodes=3, gpus=2, shares=[*default_shares(), root], state=state)


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Cluster]":
    """A control plane without nodes: the real API, garbage collection, admission; pods stay Pending."""
    from oarlock_local.cluster import find
    from oarlock_local.machine import why_no_control_plane

    if shared := os.environ.get(SHARED):
        yield find("control-plane", state=Path(shared))
        return
    if reason := why_no_control_plane():
        pytest.skip(reason)
    with control_plane_in(tmp_path_factory.mktemp("clusters")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def local_cluster(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> "Iterator[Cluster]":
    """Three real nodes that advertise two GPUs each; host-userland pods see this Python and the tested repository."""
    from oarlock_local.cluster import find
    from oarlock_local.machine import why_no_nodes

    if shared := os.environ.get(SHARED):
        yield find("nodes", state=Path(shared))
        return
    if reason := why_no_nodes():
        pytest.skip(reason)
    with nodes_in(tmp_path_factory.mktemp("clusters"), pytestconfig.rootpath) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    """Chromium without a window, for the tests of one file; none of them may be async."""
    from oarlock_local.chromium import running
    from oarlock_local.errors import MachineError

    try:
        with running() as browser:
            yield browser
    except MachineError as error:
        pytest.fail(str(error), pytrace=False)
