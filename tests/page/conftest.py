"""Played jobs on a control plane, the page's server before them, and a browser before that."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from oarlock_local.api import ApiServer
from tests.page.played import NAMES, Played, team
from tests.page.serving import in_cluster, laptop
from tests.page.visit import Visit

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from oarlock_local.cluster import Cluster

Visitor = Callable[..., Visit]


@pytest.fixture(scope="session")
def played(control_plane: Cluster) -> Iterator[Played]:
    """Jobs of two teams. Nodes and jobs are gone afterwards: other tests count what there is."""
    with ApiServer(control_plane.kubeconfig) as api:
        played = Played(control_plane, api)
        team(played)
        yield played
        control_plane.kubectl("delete", "namespace", "team-a", "team-b", "--wait=false")
        control_plane.kubectl("delete", "node", *NAMES)


@pytest.fixture(scope="session")
def link(played: Played) -> Iterator[str]:
    """What `oarlock web` prints, as the cluster's administrator."""
    with laptop(played.cluster.kubeconfig) as link:
        yield link


@pytest.fixture(scope="session")
def address(played: Played, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The page as it is in a cluster, with actions."""
    with in_cluster(played.cluster.kubeconfig, tmp_path_factory.mktemp("page"), "--actions") as address:
        yield address


@pytest.fixture
def visitor(browser: Browser) -> Iterator[Visitor]:
    """Somebody at an address, with a browser of his own."""
    with ExitStack() as open_ones:

        def begin(address: str, **options: Any) -> Visit:
            return open_ones.enter_context(Visit(browser, address, **options))

        yield begin


@pytest.fixture
def visit(visitor: Visitor, link: str) -> Visit:
    """Who has opened the link."""
    return visitor(link)


@pytest.fixture
def pictures() -> Path:
    """Where pictures of the page go, for people and for the documentation."""
    folder = Path(__file__).parents[2] / "out/page"
    folder.mkdir(parents=True, exist_ok=True)
    return folder
