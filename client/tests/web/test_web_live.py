"""A stream by itself: what it says when, and that a slow viewer costs nothing. Its clock is the test's."""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from oarlock.errors import ForbiddenError, NoClusterError, NotNowError, OarlockError, RefusedError
from oarlock.report.markup import element
from oarlock.web import live
from oarlock.web.ask import Region, View
from oarlock.web.live import MOST_STATES, States, events
from oarlock.web.watch.bell import Bell
from oarlock_local import patience


def in_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test on an event loop of its own thread: where a browser is open, this thread has one already."""

    @functools.wraps(test)
    def run(*given: Any, **named: Any) -> None:
        with ThreadPoolExecutor(1) as thread:
            thread.submit(lambda: asyncio.run(asyncio.wait_for(test(*given, **named), patience.SECONDS))).result()

    run.__signature__ = inspect.signature(test)  # type: ignore[attr-defined]
    del run.__wrapped__  # type: ignore[attr-defined] - else pytest sees a coroutine's function
    return run


def view(**children: str) -> View:
    region = Region("list", {name: element("p", text, id=name) for name, text in children.items()})
    return View(title="A view", body=region.html(), regions=(region,))


class Played:
    """A stream of views that the test chooses."""

    def __init__(self, first: View | OarlockError, *, since: str = "", states: States | None = None) -> None:
        self.now: View | OarlockError = first
        self.troubles: tuple[str, ...] = ()
        self.over = False
        self.bell = Bell()
        self.states = states or States()
        self._events: AsyncIterator[str] = events(
            self._draw, bell=self.bell, states=self.states, since=since, ended=lambda: self.over, heartbeat=0.02
        )

    async def _draw(self) -> tuple[View, tuple[str, ...]]:
        if isinstance(self.now, OarlockError):
            raise self.now
        return self.now, self.troubles

    async def next(self) -> tuple[str, Any, str]:
        """Kind, data and id of what comes next, heartbeats included."""
        told = await asyncio.wait_for(anext(self._events), patience.SECONDS)
        if told.startswith((":", "retry")):
            return told.partition(" ")[0], None, ""
        lines = dict(line.split(": ", 1) for line in told.strip().split("\n"))
        return lines["event"], json.loads(lines["data"]), lines.get("id", "")

    async def telling(self) -> tuple[str, Any, str]:
        """What comes next that is no heartbeat."""
        while True:
            told = await self.next()
            if told[0] not in {":", "retry:"}:
                return told

    def show(self, now: View | OarlockError) -> None:
        self.now = now
        self.bell.ring()


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "GATHER_SECONDS", 0)


@in_a_loop
async def test_where_nothing_changes_it_only_says_that_it_lives() -> None:
    stream = Played(view(a="1"))
    kinds = [(await stream.next())[0] for _ in range(4)]
    assert kinds == ["retry:", "draw", ":", ":"]


@in_a_loop
async def test_many_changes_that_nobody_took_are_one() -> None:
    stream = Played(view(a="1", b="1"))
    await stream.telling()
    for step in range(1000):
        stream.show(view(a=str(step), b="1"))
    _, data, _ = await stream.telling()
    assert data == {"title": "A view", "regions": [{"id": "list", "html": {"a": '<p id="a">999</p>'}}]}
    assert (await stream.next())[0] == ":"


@in_a_loop
async def test_what_comes_goes_or_moves_comes_with_the_order() -> None:
    stream = Played(view(a="1", b="1"))
    await stream.telling()
    stream.show(view(b="1", c="1"))
    _, data, _ = await stream.telling()
    assert data["regions"] == [{"id": "list", "html": {"c": '<p id="c">1</p>'}, "order": ["b", "c"]}]
    stream.show(view(c="1", b="1"))
    _, data, _ = await stream.telling()
    assert data["regions"] == [{"id": "list", "html": {}, "order": ["c", "b"]}]


@in_a_loop
async def test_who_comes_back_after_too_long_is_sent_everything() -> None:
    states = States()
    first = states.keep(view(a="1"))[0]
    again = Played(view(a="1", b="2"), since=first, states=states)
    assert set((await again.telling())[1]["regions"][0]["html"]) == {"b"}
    for step in range(MOST_STATES):
        states.keep(view(a=f"other {step}"))
    late = Played(view(a="1", b="2"), since=first, states=states)
    assert set((await late.telling())[1]["regions"][0]["html"]) == {"a", "b"}


@pytest.mark.parametrize("since", ["", "nonsense", "-1", "\u0661"])
@in_a_loop
async def test_an_id_that_was_never_given_gets_everything(since: str) -> None:
    stream = Played(view(a="1"), since=since)
    assert (await stream.telling())[1]["regions"][0]["order"] == ["a"]


@pytest.mark.parametrize(
    "hiccup", [NoClusterError("it does not answer"), RefusedError("overloaded", 503), NotNowError("too many lists")]
)
@in_a_loop
async def test_a_hiccup_is_told_and_waited_out(hiccup: OarlockError) -> None:
    stream = Played(view(a="1"))
    await stream.telling()
    stream.show(hiccup)
    assert (await stream.telling())[:2] == ("trouble", str(hiccup))
    stream.show(view(a="2"))
    assert (await stream.telling())[0] == "draw"
    assert (await stream.telling())[:2] == ("trouble", "")


@in_a_loop
async def test_who_may_no_more_is_sent_to_the_page_that_says_so() -> None:
    stream = Played(view(a="1"))
    await stream.telling()
    stream.show(ForbiddenError("no"))
    assert (await stream.telling())[0] == "reload"
    with pytest.raises(StopAsyncIteration):
        await stream.next()


@in_a_loop
async def test_a_session_that_ends_takes_the_stream_with_it_though_nothing_changes() -> None:
    stream = Played(view(a="1"))
    await stream.telling()
    stream.over = True
    assert (await stream.telling())[0] == "reload"


@in_a_loop
async def test_another_view_in_its_place_is_a_reload() -> None:
    """As for one who is told that he may not see the list any more."""
    stream = Played(view(a="1"))
    await stream.telling()
    stream.show(View(title="You may not", body=element("p", "no")))
    assert (await stream.telling())[0] == "reload"


@in_a_loop
async def test_what_a_view_says_cannot_break_the_stream() -> None:
    stream = Played(view(a="x\n\nevent: reload\ndata: \r\n\u2028"))
    kind, data, _ = await stream.telling()
    assert kind == "draw"
    assert "event: reload" in data["regions"][0]["html"]["a"]
