"""Who waits for a pod that does not answer makes nobody else wait."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from urllib.parse import urlsplit

import pytest
from fake_api import FakeApi
from starlette.responses import PlainTextResponse, Response
from streams import Stream, served

from oarlock.report.markup import element
from oarlock.web import app
from oarlock.web.access.link import LinkAuthenticator
from oarlock.web.app import build
from oarlock.web.ask import Ask, Page, Read, Region, View
from oarlock.web.settings import Settings
from oarlock_local import patience

PORT = 8270
MANY = 45
"""More than anyio has threads."""


class Hung:
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.over = threading.Event()

    def read(self, _: Ask) -> Response:
        self.over.wait(patience.SECONDS)
        return PlainTextResponse("late")

    def draw(self, _: Ask) -> View:
        self.over.wait(patience.SECONDS)
        region = Region("late", {"late": element("p", "late", id="late")})
        return View(title="late", body=region.html(), regions=(region,))


@pytest.fixture
def hung(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hung]:
    hung = Hung()
    monkeypatch.setattr(app, "READS", (Read(path="/hung/read", answer=hung.read, asks_pods=True),))
    page = Page(path="/hung", draw=hung.draw, own=True, asks_pods=True)
    monkeypatch.setattr(app, "PAGES", (*app.PAGES, page))
    yield hung
    hung.over.set()


@contextmanager
def asked(address: str, access: LinkAuthenticator, path: str) -> Iterator[http.client.HTTPConnection]:
    """A request that is sent."""
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=patience.SECONDS)
    connection.request("GET", path, headers={"Cookie": f"oarlock-{PORT}={access._caller.session}"})
    try:
        yield connection
    finally:
        connection.close()


@pytest.mark.parametrize("path", ["/hung/read", "/hung"])
def test_a_pod_that_does_not_answer_delays_no_list(
    api: FakeApi, access: LinkAuthenticator, hung: Hung, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    api.add_job("a", "team")
    arrived, known = threading.Semaphore(0), access.caller

    def caller(request: object) -> object:
        arrived.release()
        return known(request)  # type: ignore[arg-type]

    monkeypatch.setattr(access, "caller", caller)
    with served(build(Settings(), access)) as address, ExitStack() as open_:
        for _ in range(MANY):
            open_.enter_context(asked(address, access, path))
        for _ in range(MANY):
            assert arrived.acquire(timeout=patience.SECONDS)
        with asked(address, access, "/jobs/team") as list_:
            assert list_.getresponse().status == 200
        hung.over.set()


def test_live_pages_of_a_pod_that_does_not_answer_stop_no_other(
    api: FakeApi, access: LinkAuthenticator, hung: Hung
) -> None:
    api.add_job("a", "team")
    cookie = {"Cookie": f"oarlock-{PORT}={access._caller.session}"}
    with served(build(Settings(), access)) as address, ExitStack() as open_:
        for _ in range(18):
            assert open_.enter_context(Stream(f"{address}/live/hung", cookie)).status == 200
        other = open_.enter_context(Stream(f"{address}/live/jobs/team", cookie))
        assert other.next().kind == "draw"
        hung.over.set()


def test_one_person_has_so_many_live_pages(
    api: FakeApi, access: LinkAuthenticator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "STREAMS_EACH", 1)
    api.add_job("a", "team")
    cookie = {"Cookie": f"oarlock-{PORT}={access._caller.session}"}
    with served(build(Settings(), access)) as address, ExitStack() as open_:
        first = open_.enter_context(Stream(f"{address}/live/jobs/team", cookie))
        assert first.next().kind == "draw"
        assert open_.enter_context(Stream(f"{address}/live/jobs/team", cookie)).status == 503
