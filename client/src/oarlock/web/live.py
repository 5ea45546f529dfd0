"""Live pages by server-sent events: what has changed of a view since this viewer's last.

A stream keeps no queue. When a list has changed it draws the view as it is now and sends the children whose markup differs
from what was sent last; so a slow viewer gets fewer and larger steps, and costs no memory. Each event's id names all that
the viewer then has: one who comes back with it gets the difference, if the server still knows that id, else everything.
"""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

from oarlock.errors import NoClusterError, NotNowError, OarlockError, RefusedError
from oarlock.patience import is_hiccup
from oarlock.web.ask import Region, View
from oarlock.web.watch.bell import Bell

HEARTBEAT_SECONDS = 15.0
"""Between two signs of life: shorter than proxies wait. Also how often rights are looked after where nothing changes."""
GATHER_SECONDS = 0.5
"""After a change: a gang's ranks change together, nobody reads faster, and ten viewers of 500 busy jobs cost half as much."""
MOST_STATES = 128
State = Mapping[str, Mapping[str, int]]
"""Region -> child -> a hash of its markup, in order; under no region's name the title's."""


class States:
    """What viewers had, by its id; the latest only."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, State] = OrderedDict()

    def keep(self, view: View) -> tuple[str, State]:
        """The state that one has who was sent this view, and its id."""
        state = {one.id: {child: hash(markup) for child, markup in one.children.items()} for one in view.regions}
        state[""] = {"title": hash(view.title)}
        name = f"{hash(tuple((region, *children.items()) for region, children in state.items())) & (1 << 64) - 1:x}"
        self._kept[name] = state
        self._kept.move_to_end(name)
        while len(self._kept) > MOST_STATES:
            self._kept.popitem(last=False)
        return name, state

    def known(self, name: str) -> State:
        """Empty where it is forgotten."""
        return self._kept.get(name, {})


def changes(before: State, after: State, regions: tuple[Region, ...]) -> list[dict[str, Any]]:
    """What to send: for each region the markup of children that are new or other, and the order where that has changed."""
    found = []
    for region in regions:
        had, has = before.get(region.id, {}), after[region.id]
        markup = {child: str(region.children[child]) for child, mark in has.items() if had.get(child) != mark}
        told: dict[str, Any] = {"id": region.id, "html": markup}
        if list(had) != list(has):
            told["order"] = list(has)
        if markup or "order" in told:
            found.append(told)
    return found


async def events(
    draw: Callable[[], Awaitable[tuple[View, tuple[str, ...]]]],
    *,
    bell: Bell,
    states: States,
    since: str = "",
    ended: Callable[[], bool] = lambda: False,
    heartbeat: float = HEARTBEAT_SECONDS,
) -> AsyncIterator[str]:
    """The stream of one viewer. `draw` gives the view and why it may be old; `ended`: whether his session is over.

    Events: `draw` has changes; `trouble` a sentence, empty where all is well; after `reload` the page tells what is wrong.
    """
    had, trouble = states.known(since), ""
    last = since if had else ""
    yield "retry: 3000\n\n"
    while not ended():
        try:
            view, troubles = await draw()
        except OarlockError as error:
            if not (
                isinstance(error, NotNowError)
                or (isinstance(error, NoClusterError | RefusedError) and is_hiccup(error))
            ):
                break
            now = str(error)
        else:
            now = " ".join(troubles)
            name, has = states.keep(view)
            if had and has.keys() != had.keys():
                break  # what was shown is not to be seen any more
            if name != last:
                yield _event("draw", {"title": view.title, "regions": changes(had, has, view.regions)}, name)
            had, last = has, name
        if now != trouble:
            trouble = now
            yield _event("trouble", trouble)
        if await bell.heard(heartbeat):
            await asyncio.sleep(GATHER_SECONDS)
        else:
            yield ": alive\n\n"
    yield _event("reload", "")


def _event(kind: str, data: object, name: str = "") -> str:
    told = f"id: {name}\n" if name else ""
    return f"{told}event: {kind}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n"
