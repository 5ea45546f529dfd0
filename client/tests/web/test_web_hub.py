"""Watches that are shared: by whose rights they run, who may see what they tell, and when they end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
from fake_api import JOBS, FakeApi
from urllib3 import PoolManager

from oarlock.access import Plain
from oarlock.cluster import Cluster
from oarlock.errors import ForbiddenError, OarlockError, RefusedError, UnknownCallerError
from oarlock.web.access.caller import Caller
from oarlock.web.watch import feed
from oarlock.web.watch.feed import Snapshot, Watched
from oarlock.web.watch.hub import LOOK_SECONDS, RIGHTS_SECONDS, Hub
from oarlock_local import patience

PATH = JOBS.format("team")
LIST = Watched(PATH)


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Bell:
    """Heard by a thread."""

    def __init__(self) -> None:
        self.rung = threading.Semaphore(0)

    def ring(self) -> None:
        self.rung.release()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def hub(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    monkeypatch.setattr("oarlock.web.watch.hub.FIRST_PAUSE", 0.01)
    hub = Hub(clock=clock, watch_seconds=20)
    yield hub
    hub.close()


@pytest.fixture
def caller(api: FakeApi) -> Callable[[str], Caller]:
    def make(token: str, *namespaces: str) -> Caller:
        api.tokens[token] = set(namespaces)
        cluster = Cluster(Plain(api.address, PoolManager(), token), namespace="default", where="the cluster")
        return Caller(cluster=cluster, identity=token, session=token)

    return make


def told(hub: Hub, caller: Caller, until: Callable[[Snapshot], bool], watched: Watched = LIST) -> Snapshot:
    """What the list is once that holds; waits for the watch, as a stream does."""
    bell = Bell()
    while True:
        snapshot = hub.read(caller, watched, bell)  # type: ignore[arg-type]
        if until(snapshot):
            return snapshot
        assert bell.rung.acquire(timeout=patience.SECONDS), snapshot


def names(snapshot: Snapshot) -> list[str]:
    return [name for _, name in snapshot.objects]


def watches(api: FakeApi) -> int:
    return sum("watch=true" in path for _, path, _ in api.asked)


def test_one_watch_for_all_who_look(api: FakeApi, hub: Hub, caller: Callable[..., Caller]) -> None:
    anne, bert = caller("anne", "team"), caller("bert", "team")
    api.add_job("a", "team")
    assert names(hub.read(anne, LIST)) == names(hub.read(bert, LIST)) == ["a"]
    api.change(f"{PATH}/b", api.add_job("b", "team"))
    assert names(told(hub, bert, lambda seen: len(seen.objects) == 2)) == ["a", "b"]
    assert names(hub.read(anne, LIST)) == ["a", "b"]
    assert watches(api) == 1


def test_nobody_sees_by_anothers_rights(api: FakeApi, hub: Hub, caller: Callable[..., Caller]) -> None:
    anne, eve = caller("anne", "team"), caller("eve", "other")
    api.add_job("a", "team")
    hub.read(anne, LIST)
    with pytest.raises(ForbiddenError, match="eve may not read"):
        hub.read(eve, LIST)
    assert names(hub.read(anne, LIST)) == ["a"], "and the refusal of one takes nothing from the other"


def test_a_right_that_ends_is_lost_within_the_minute(
    api: FakeApi, hub: Hub, clock: Clock, caller: Callable[..., Caller]
) -> None:
    anne, bert = caller("anne", "team"), caller("bert", "team")
    hub.read(anne, LIST)
    hub.read(bert, LIST)
    api.tokens["bert"] = set()
    hub.read(bert, LIST)
    clock.now += RIGHTS_SECONDS
    with pytest.raises(ForbiddenError):
        hub.read(bert, LIST)
    hub.read(anne, LIST)


def test_a_token_that_ends_is_no_mere_refusal(
    api: FakeApi, hub: Hub, clock: Clock, caller: Callable[..., Caller]
) -> None:
    anne = caller("anne", "team")
    hub.read(anne, LIST)
    del api.tokens["anne"]
    clock.now += RIGHTS_SECONDS
    with pytest.raises(UnknownCallerError):
        hub.read(anne, LIST)


def test_the_watch_goes_on_as_another_when_its_first_may_no_more(
    api: FakeApi, hub: Hub, caller: Callable[..., Caller]
) -> None:
    anne, bert = caller("anne", "team"), caller("bert", "team")
    hub.read(bert, LIST)
    hub.read(anne, LIST)
    api.end_watches()  # the next one is anne's, whose right is the newest
    api.tokens["anne"] = set()
    api.end_watches()
    api.change(f"{PATH}/b", api.add_job("b", "team"))
    assert names(told(hub, bert, lambda seen: bool(seen.objects))) == ["b"]


def test_a_watch_ends_when_nobody_has_looked_for_a_while(
    api: FakeApi, hub: Hub, clock: Clock, caller: Callable[..., Caller]
) -> None:
    anne = caller("anne", "team")
    hub.read(anne, LIST)
    bell = Bell()
    hub.read(anne, LIST, bell)  # type: ignore[arg-type]
    api.watched()
    clock.now += LOOK_SECONDS
    api.end_watches()
    assert bell.rung.acquire(timeout=patience.SECONDS), "whoever still listens learns of the end"
    assert hub.open == []


def test_a_list_that_nobody_may_read_is_not_kept(hub: Hub, caller: Callable[..., Caller]) -> None:
    with pytest.raises(ForbiddenError):
        hub.read(caller("eve", "other"), LIST)
    assert hub.open == []


def test_a_watch_that_breaks_says_so_until_it_is_back(api: FakeApi, hub: Hub, caller: Callable[..., Caller]) -> None:
    anne = caller("anne", "team")
    hub.read(anne, LIST)
    api.watched()
    api.before = lambda _, path, __: (503, "the server is overloaded") if "watch=true" in path else None
    api.end_watches()
    assert "overloaded" in told(hub, anne, lambda seen: bool(seen.trouble)).trouble
    api.before = lambda *_: None
    api.change(f"{PATH}/b", api.add_job("b", "team"))
    assert names(told(hub, anne, lambda seen: bool(seen.objects) and not seen.trouble)) == ["b"]


@pytest.mark.parametrize("line", [b'{"type":"ERROR","object":{"code":410}}\n', b"torn"])
def test_a_watch_that_lost_its_place_reads_the_list_again(
    api: FakeApi, hub: Hub, caller: Callable[..., Caller], monkeypatch: pytest.MonkeyPatch, line: bytes
) -> None:
    anne = caller("anne", "team")
    hub.read(anne, LIST)
    api.watched()
    watch = api.watch
    monkeypatch.setattr(api, "watch", lambda *_: iter([line]))
    api.add_job("b", "team")  # without an event
    api.end_watches()
    assert names(told(hub, anne, lambda seen: bool(seen.objects))) == ["b"]
    monkeypatch.setattr(api, "watch", watch)


def test_a_list_has_a_bound(
    api: FakeApi, hub: Hub, caller: Callable[..., Caller], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "MOST_OBJECTS", 2)
    for name in "abc":
        api.add_job(name, "team")
    with pytest.raises(RefusedError, match="look at one namespace"):
        hub.read(caller("anne", "team"), LIST)


def test_who_asks_too_many_lists_is_told(
    hub: Hub, caller: Callable[..., Caller], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oarlock.web.watch.hub.MOST_LISTS", 2)
    anne = caller("anne", "team")
    for label in ("a=1", "a=2"):
        hub.read(anne, Watched(PATH, labels=label))
    with pytest.raises(OarlockError, match="close some pages"):
        hub.read(anne, Watched(PATH, labels="a=3"))


def test_one_person_leaves_lists_for_others(
    hub: Hub, caller: Callable[..., Caller], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oarlock.web.watch.hub.LISTS_EACH", 2)
    anne = caller("anne", "team")
    for label in ("a=1", "a=2"):
        hub.read(anne, Watched(PATH, labels=label))
    with pytest.raises(OarlockError, match="watched for you"):
        hub.read(anne, Watched(PATH, labels="a=3"))
    hub.read(caller("bert", "team"), Watched(PATH, labels="a=3"))


def test_what_is_not_there_is_not_watched(api: FakeApi, hub: Hub, caller: Callable[..., Caller]) -> None:
    anne, empty = caller("anne", "team"), Watched(PATH, fields="metadata.name=none")
    hub.read(anne, empty)
    hub.let_go(anne, empty)
    assert hub.open == []
    api.add_job("a", "team")
    hub.read(anne, LIST)
    hub.let_go(anne, LIST)
    assert hub.open == [LIST], "what has something in it stays"
