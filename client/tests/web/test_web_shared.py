"""A view is drawn once for each change, and nobody is shown what another's rights have drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from fake_api import JOBS, FakeApi
from urllib3 import PoolManager

from oarlock.access import Plain
from oarlock.cluster import Cluster
from oarlock.errors import ForbiddenError, OarlockError
from oarlock.report.markup import Html
from oarlock.web import shared
from oarlock.web.access.caller import Caller
from oarlock.web.ask import Ask, View
from oarlock.web.settings import Settings
from oarlock.web.shared import Drawings
from oarlock.web.shelf import Shelf
from oarlock.web.watch.feed import Watched
from oarlock.web.watch.hub import Hub

TEAM, NODES = Watched(JOBS.format("team")), Watched("/api/v1/nodes")


class Drawn:
    """A view of the team's jobs that counts how often it is drawn, and can do more before."""

    def __init__(self, more: Callable[[Ask], object] = lambda _: None) -> None:
        self.times = 0
        self._more = more

    def __call__(self, ask: Ask) -> View:
        names = [name for _, name in ask.watched(TEAM).objects]
        self._more(ask)
        self.times += 1
        return View(title=",".join(names), body=Html())


@pytest.fixture
def ask(api: FakeApi) -> Iterator[Callable[..., Ask]]:
    hub = Hub()

    def make(token: str, *namespaces: str) -> Ask:
        api.tokens[token] = set(namespaces) if namespaces else None
        cluster = Cluster(Plain(api.address, PoolManager(), token), namespace="default", where="the cluster")
        caller = Caller(cluster=cluster, identity=token, session=token)
        return Ask(caller=caller, hub=hub, settings=Settings(), address="/x", path={}, query={}, shelf=Shelf())

    yield make
    hub.close()


def test_viewers_who_may_share_a_drawing(api: FakeApi, ask: Callable[..., Ask]) -> None:
    api.add_job("a", "team")
    drawings, view = Drawings(), Drawn()
    assert {drawings.draw("/x", ask(token, "team"), view).title for token in ("anne", "bert", "carl")} == {"a"}
    assert view.times == 1


def test_who_may_not_gets_no_drawing_of_another(ask: Callable[..., Ask]) -> None:
    drawings, view = Drawings(), Drawn()
    drawings.draw("/x", ask("anne", "team"), view)
    with pytest.raises(ForbiddenError):
        drawings.draw("/x", ask("eve", "other"), view)


def test_what_was_drawn_with_own_requests_or_with_a_refusal_is_its_callers_alone(ask: Callable[..., Ask]) -> None:
    drawings, own = Drawings(), Drawn(lambda ask: ask.cluster)
    for token in ("anne", "bert", "anne"):
        drawings.draw("/own", ask(token, "team"), own)
    assert own.times == 3

    def nodes(ask: Ask) -> None:
        try:
            ask.watched(NODES)
        except OarlockError:
            seen.append("no nodes")
        else:
            seen.append("nodes")

    seen: list[str] = []
    view = Drawn(nodes)
    for token, *namespaces in (("carl", "team"), ("root",), ("dora", "team"), ("admin",), ("carl", "team")):
        drawings.draw("/nodes", ask(token, *namespaces), view)
    assert seen == ["no nodes", "nodes", "no nodes", "no nodes"], "the second who may see them shares the first one's"


def test_a_form_with_a_token_is_nobody_elses(ask: Callable[..., Ask]) -> None:
    drawings, view = Drawings(), Drawn(lambda ask: ask.csrf())
    for token in ("anne", "bert"):
        drawings.draw("/x", ask(token, "team"), view)
    assert view.times == 2


def test_what_tells_the_time_is_drawn_again_after_a_while(
    ask: Callable[..., Ask], monkeypatch: pytest.MonkeyPatch
) -> None:
    drawings, view = Drawings(), Drawn(lambda ask: ask.now)
    for token in ("anne", "bert"):
        drawings.draw("/x", ask(token, "team"), view)
    assert view.times == 1
    monkeypatch.setattr(shared, "TIMED_SECONDS", 0.0)
    other = Drawn(lambda ask: ask.now)
    for token in ("anne", "bert"):
        drawings.draw("/y", ask(token, "team"), other)
    assert other.times == 2


def test_addresses_that_nobody_asks_for_any_more_are_forgotten(
    ask: Callable[..., Ask], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared, "MOST_ADDRESSES", 2)
    drawings, view = Drawings(), Drawn()
    for address in ("/1", "/2", "/3", "/1"):
        drawings.draw(address, ask("anne", "team"), view)
    assert view.times == 4
    assert len(drawings._kept) == 2
