from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from fake_api import FakeApi
from starlette.testclient import TestClient

from oarlock.cluster import connect
from oarlock.web.access.link import LinkAuthenticator
from oarlock.web.app import build
from oarlock.web.settings import Settings

sys.path.extend(str(Path(__file__).parents[1] / name) for name in ("web", "report", "explain"))
from streams import Stream, served

PORT = 8270


@pytest.fixture
def access(api: FakeApi) -> LinkAuthenticator:  # noqa: ARG001 - the kubeconfig in the environment leads to it
    return LinkAuthenticator(connect(), port=PORT)


@pytest.fixture
def page(access: LinkAuthenticator) -> Iterator[TestClient]:
    """A browser that has followed the printed link."""
    app = build(Settings(), access)
    with TestClient(app, base_url=f"http://127.0.0.1:{PORT}", follow_redirects=False) as page:
        page.get(access.link)
        yield page


@pytest.fixture
def listen(access: LinkAuthenticator) -> Iterator[object]:
    """Opens a path of a served page, as the browser of who has followed the link: its events, one by one."""
    with served(build(Settings(), access)) as address, ExitStack() as opened:
        cookie = {"Cookie": f"oarlock-{PORT}={access._caller.session}"}
        yield lambda path, **headers: opened.enter_context(Stream(f"{address}{path}", {**cookie, **headers}))
