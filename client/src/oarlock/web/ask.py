"""What a view is asked, and what it answers with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property

from starlette.responses import Response

from oarlock.cluster import Cluster
from oarlock.errors import NotFoundError, OarlockError
from oarlock.names import is_name
from oarlock.report.markup import Attribute, Html, element
from oarlock.web.access.caller import Caller
from oarlock.web.settings import Settings
from oarlock.web.shelf import Shelf
from oarlock.web.watch.bell import Bell
from oarlock.web.watch.feed import Snapshot, Watched
from oarlock.web.watch.hub import Hub

MOST_CHARACTERS = 200
"""Of a parameter of the query."""


class Ask:
    """One question: who asks, for what, and what the answer was made of.

    That decides who else may be given the same answer, and for how long: `reads` are the lists that it needed, `own` whether
    it came from a request of the caller's own, `partial` whether a list was refused, `timed` whether it tells the time.
    """

    def __init__(
        self,
        *,
        caller: Caller,
        hub: Hub,
        settings: Settings,
        address: str,
        path: Mapping[str, str],
        query: Mapping[str, str],
        shelf: Shelf,
        bell: Bell | None = None,
        csrf: Callable[[], str] = str,
    ) -> None:
        """`address` is the path as it was asked for, `path` its parameters; `bell`: for who hears of changes."""
        self.caller, self.settings, self.address, self.path = caller, settings, address, path
        self.reads: dict[Watched, int] = {}
        self.troubles: dict[str, None] = {}
        self.own = self.partial = self.timed = False
        self.shelf, self.bell = shelf, bell
        self._hub, self._query, self._csrf = hub, query, csrf

    def watched(self, watched: Watched) -> Snapshot:
        """A list of the API as it is now. Raises OarlockError as the caller's own request for it would."""
        try:
            snapshot = self._hub.read(self.caller, watched, self.bell)
        except OarlockError:
            self.partial = True
            raise
        self.reads[watched] = snapshot.version
        if snapshot.trouble:
            self.troubles[snapshot.trouble] = None
        return snapshot

    def let_go(self) -> None:
        """What was asked for is not there: keep none of the lists watched that were read for it and are empty."""
        for watched in self.reads:
            self._hub.let_go(self.caller, watched)

    @property
    def cluster(self) -> Cluster:
        """Requests as the caller. What comes of them is for this caller alone."""
        self.own = True
        return self.caller.cluster

    @cached_property
    def now(self) -> datetime:
        """The time. What tells it is drawn again after a while, also where nothing has changed."""
        self.timed = True
        return datetime.now(UTC)

    def query(self, name: str, default: str = "") -> str:
        """A parameter of the query, cut at MOST_CHARACTERS."""
        return self._query.get(name, default)[:MOST_CHARACTERS].strip()

    def name(self, parameter: str) -> str:
        """A parameter of the path that is an object's name. Raises NotFoundError where it can be none."""
        given = self.path.get(parameter, "")
        if not is_name(given):
            raise NotFoundError(f"{given[:80]!r} can be no {parameter}'s name: look at the address")
        return given

    def csrf(self) -> str:
        """A token for a form. Whoever has one draws for this caller alone."""
        self.own = True
        return self._csrf()


@dataclass(frozen=True, slots=True)
class Region:
    """An element whose children come and go: each by the id that its markup has, in this order."""

    id: str
    children: Mapping[str, Html]
    tag: str = "div"
    attributes: Mapping[str, Attribute] = field(default_factory=dict)

    def html(self) -> Html:
        """The element, with all its children."""
        return element(self.tag, *self.children.values(), id=self.id, **self.attributes)


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A page's content. `body` holds the regions' markup; what of the body is in no region never changes by itself."""

    title: str
    body: Html
    regions: tuple[Region, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A view at a path, as Starlette writes one. `tab` is the part of the header's navigation that it belongs to.

    `own`: it always makes requests of the caller's own, so it is never looked for among the drawings of others.
    `asks_pods`: it may wait for a pod.
    """

    path: str
    draw: Callable[[Ask], View]
    tab: str = ""
    own: bool = False
    asks_pods: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """Something that is no page, such as a picture; bounded by whoever answers; `asks_pods` as a Page. Called on a thread."""

    path: str
    answer: Callable[[Ask], Response]
    asks_pods: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Post:
    """Something that is done: called on a thread with the form's fields, after its CSRF token was found right."""

    path: str
    act: Callable[[Ask, Mapping[str, str]], Response]
