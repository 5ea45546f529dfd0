"""The application: which address is answered by what. Everything that a view needs is in its Ask (ask.py)."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from oarlock.errors import ForbiddenError, NotFoundError, NotNowError, OarlockError, RefusedError, UnknownCallerError
from oarlock.names import is_name
from oarlock.report.markup import element, with_code
from oarlock.web import assets, guards, live
from oarlock.web.access.caller import Authenticator, Caller
from oarlock.web.albums import AT_ONCE
from oarlock.web.ask import Ask, Page, Post, Read, View
from oarlock.web.busy import RETRY_SECONDS, BusyError
from oarlock.web.drawn.document import THEMES
from oarlock.web.drawn.frame import Frame, framed
from oarlock.web.drawn.plain import notice
from oarlock.web.lanes import Lane
from oarlock.web.settings import Settings
from oarlock.web.shared import Drawings
from oarlock.web.shelf import Shelf
from oarlock.web.views import actions, curve, job, jobs, logs, nodes, pictures, words
from oarlock.web.watch.bell import Bell
from oarlock.web.watch.hub import Hub

PAGES: tuple[Page, ...] = (
    *jobs.PAGES,
    *job.PAGES,
    *curve.PAGES,
    *logs.PAGES,
    *pictures.PAGES,
    *nodes.PAGES,
    *actions.PAGES,
    *words.PAGES,
)
READS: tuple[Read, ...] = (*jobs.READS, *pictures.READS)
POSTS: tuple[Post, ...] = (*actions.POSTS,)
TABS = (("Jobs", "/"), ("Nodes", "/nodes"))
MOST_STREAMS, STREAMS_EACH = 256, 24
"""Live pages of all, and of one person."""
THEME = "oarlock-theme"
YEAR = 365 * 86400
Answer = Callable[[Request, Caller], Any]


def build(
    settings: Settings, access: Authenticator, *, hub: Hub | None = None, csrf: guards.Csrf | None = None
) -> ASGIApp:
    """The application; `hub` and `csrf` are its own by default."""
    site = _Site(settings, access, hub or Hub(), csrf or guards.Csrf())
    routes = [
        Route("/", site.start),
        Route(guards.ALIVE, _alive),
        Route("/static/{digest}/{name}", assets.send),
        Route("/theme", _choose_theme, methods=["POST"]),
        *access.routes(),
        *(Route(page.path, site.page(page)) for page in PAGES),
        *(Route(f"/live{page.path}", site.stream(page)) for page in PAGES),
        *(Route(read.path, site.read(read)) for read in READS),
        *(Route(post.path, site.post(post.act), methods=["POST"]) for post in POSTS),
    ]

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        site.hub.close()
        site.shelf.close()

    app = Starlette(
        routes=routes,
        lifespan=lifespan,
        middleware=[Middleware(GZipMiddleware, minimum_size=1024, compresslevel=4)],
        exception_handlers={HTTPException: _no_page, OarlockError: site.failed, Exception: _broke},
    )
    return guards.Guard(
        app, settings.hosts
    )  # around all: what Starlette says when something breaks passes no middleware


class _Site:
    """What all requests share."""

    def __init__(self, settings: Settings, access: Authenticator, hub: Hub, csrf: guards.Csrf) -> None:
        self.settings, self.access, self.hub, self.csrf = settings, access, hub, csrf
        self.shelf = Shelf()
        self._drawings = Drawings()
        self._states = live.States()
        self._streams: Counter[str] = Counter()
        # The login has anyio's own threads. A lane's waiting delays no other one's.
        self._pages, self._pods = Lane(40, each=16), Lane(32, each=6)
        self._files = Lane(32, each=AT_ONCE)  # so one who looks at a gallery waits here, and is not refused there
        self._live, self._live_pods = Lane(16, each=6), Lane(32, each=6)

    async def start(self, request: Request) -> Response:
        """To the jobs that are meant where nobody says which."""
        caller = self.access.caller(request)
        if caller is None:
            return self.access.unknown(request)
        chosen = request.cookies.get(jobs.NAMESPACE, "")
        namespace = chosen if is_name(chosen) else self.settings.namespace or caller.namespace
        return RedirectResponse(f"/jobs/{quote(namespace)}" if namespace else "/jobs", 303)

    def page(self, page: Page) -> Callable[[Request], Any]:
        """GET of a view."""

        async def answer(request: Request) -> Response:
            caller = self.access.caller(request)
            if caller is None:
                return self.access.unknown(request)
            ask = self._ask(request, caller)
            lane = self._pods if page.asks_pods else self._pages
            view = await lane.run(caller, partial(self._draw, request, ask, page))
            return HTMLResponse(framed(self._frame(request, ask, page, view), view.title, view.body))

        return answer

    def stream(self, page: Page) -> Callable[[Request], Any]:
        """The changes of a view, as they happen."""

        async def answer(request: Request) -> Response:
            caller = self.access.caller(request)
            if caller is None:
                return PlainTextResponse("log in again", 401)
            if self._streams.total() >= MOST_STREAMS or self._streams[caller.person] >= STREAMS_EACH:
                return PlainTextResponse("too many pages are open: this one is not live", 503)
            bell = Bell()

            async def draw() -> tuple[View, tuple[str, ...]]:
                ask = self._ask(request, caller, bell)
                lane = self._live_pods if page.asks_pods else self._live
                view = await lane.run(caller, partial(self._draw, request, ask, page))
                return view, tuple(ask.troubles)

            since = request.headers.get("last-event-id") or request.query_params.get("since", "")
            events = live.events(
                draw, bell=bell, states=self._states, since=since, ended=lambda: self.access.caller(request) is None
            )
            return StreamingResponse(
                self._counted(caller.person, events),
                media_type="text/event-stream",
                headers={"x-accel-buffering": "no"},
            )

        return answer

    def read(self, read: Read) -> Callable[[Request], Any]:
        """GET of something else."""

        async def answer(request: Request) -> Response:
            caller = self.access.caller(request)
            if caller is None:
                return self.access.unknown(request)
            lane = self._files if read.asks_pods else self._pages
            return await lane.run(caller, partial(read.answer, self._ask(request, caller)))

        return answer

    def post(self, act: Callable[[Ask, Mapping[str, str]], Response]) -> Callable[[Request], Any]:
        """POST of a form of ours."""

        async def answer(request: Request) -> Response:
            caller = self.access.caller(request)
            if caller is None:
                return self.access.unknown(request)
            form = await guards.form_of(request)
            if not self.csrf.fits(form.get(guards.Csrf.FIELD, ""), caller.session):
                raise ForbiddenError(
                    "This form is not from your session, and nothing was done: reload its page, and try again."
                )
            return await self._pages.run(caller, partial(act, self._ask(request, caller), form))

        return answer

    async def failed(self, request: Request, error: Exception) -> Response:
        """An error, as a page that says what to do."""
        if isinstance(error, UnknownCallerError):
            return self.access.unknown(request)
        caller = self.access.caller(request)
        title, status = _meaning(error)
        if caller is None:
            return notice(title, str(error), status)
        body = element(
            "div",
            element("h1", title),
            element("p", with_code(str(error))),
            element("p", element("a", "All jobs", href="/")),
            class_="notice",
        )
        ask = self._ask(request, caller)
        again = {"retry-after": str(RETRY_SECONDS)} if isinstance(error, BusyError) else None
        return HTMLResponse(framed(self._frame(request, ask), title, body), status, again)

    def _ask(self, request: Request, caller: Caller, bell: Bell | None = None) -> Ask:
        return Ask(
            caller=caller,
            hub=self.hub,
            settings=self.settings,
            shelf=self.shelf,
            address=request.url.path.removeprefix("/live"),
            path=request.path_params,
            query=request.query_params,
            bell=bell,
            csrf=lambda: self.csrf.token(caller.session),
        )

    def _draw(self, request: Request, ask: Ask, page: Page) -> View:
        try:
            return self._drawn(request, ask, page)
        except NotFoundError:
            ask.let_go()
            raise

    def _drawn(self, request: Request, ask: Ask, page: Page) -> View:
        if page.own:
            return page.draw(ask)
        query = sorted((name, value) for name, value in request.query_params.items() if name != "since")
        return self._drawings.draw(f"{ask.address}?{query}", ask, page.draw)

    def _frame(self, request: Request, ask: Ask, page: Page | None = None, view: View | None = None) -> Frame:
        query = f"?{request.url.query}" if request.url.query else ""
        caller = ask.caller
        return Frame(
            where=caller.cluster.where,
            who=caller.name,
            tab=page.tab if page else "",
            tabs=TABS,
            theme=request.cookies.get(THEME, THEMES[0]),
            csrf=self.csrf.token(caller.session),
            address=f"{ask.address}{query}" if request.method == "GET" else "/",
            live=f"/live{ask.address}{query}" if view and view.regions else "",
            state=self._states.keep(view)[0] if view and view.regions else "",
            trouble=" ".join(ask.troubles),
            can_leave=caller.can_leave,
        )

    async def _counted(self, person: str, events: AsyncIterator[str]) -> AsyncIterator[str]:
        self._streams[person] += 1
        try:
            async for event in events:
                yield event
        finally:
            self._streams[person] -= 1
            if not self._streams[person]:
                del self._streams[person]


async def _choose_theme(request: Request) -> Response:
    """How the page looks is nobody's secret and no cluster's: it takes no session, so none that has ended can refuse it."""
    form = await guards.form_of(request)
    back, theme = form.get("back", "/"), form.get("theme", "")
    if theme not in THEMES:
        raise RefusedError(f"{theme[:80]!r} is no theme: one of {', '.join(THEMES)}", 400)
    response = RedirectResponse(back if guards.is_ours(back) else "/", 303)
    response.set_cookie(THEME, theme, max_age=YEAR, httponly=True, samesite="strict")
    return response


def _meaning(error: Exception) -> tuple[str, int]:
    if isinstance(error, NotFoundError):
        return "It is not there", 404
    if isinstance(error, ForbiddenError):
        return "You may not", 403
    if isinstance(error, RefusedError):
        return "That was refused", error.status if 400 <= error.status < 500 else 502
    if isinstance(error, BusyError):
        return "Too much at once", 503
    if isinstance(error, NotNowError):
        return "Not now", 409
    return "The cluster does not answer", 502


async def _alive(_: Request) -> Response:
    return PlainTextResponse("ok")


async def _no_page(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 404
    if status == 405:
        return notice("That cannot be done here", "This address is no form's: go back to the page.", status)
    words = f"There is no page at {request.url.path[:200]}: begin at the list of jobs."
    return notice("There is no such page", words, status, element("p", element("a", "All jobs", href="/")))


async def _broke(_: Request, __: Exception) -> Response:
    words = (
        "This is a fault of the page itself, and its server has printed more about it. Reload, or begin at the list."
    )
    return notice("Something broke", words, 500, element("p", element("a", "All jobs", href="/")))
