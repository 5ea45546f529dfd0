"""A cluster: whoever has a token of its API server is whom the token names. The page has no rights of its own.

The token comes by the login form, and is then kept by the browser alone, encrypted with a key of this process; or with each
request in the Authorization header, from a proxy that logs people in. Nothing is stored here but who has logged out.
"""

from __future__ import annotations

import base64
import json
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from anyio import to_thread
from cryptography.fernet import Fernet, InvalidToken
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route
from urllib3 import PoolManager

from oarlock.access import Plain
from oarlock.cluster import Cluster
from oarlock.errors import ForbiddenError, OarlockError, UnknownCallerError
from oarlock.parts import part
from oarlock.web.access.caller import Caller, digest
from oarlock.web.drawn.login import login_page
from oarlock.web.drawn.plain import notice, passing_on
from oarlock.web.guards import LOOPBACK, Csrf, form_of, host_name, is_ours
from oarlock_api.contract.wire import number

LIFE_SECONDS = 3600
MOST_TOKEN = 8192
"""Characters; those of identity providers with many groups have some 4,000."""
PIECE, MOST_PIECES = 3500, 4
"""A browser keeps 4,096 bytes of a cookie, its name and attributes included."""
MOST_ENDED = 10_000
WHO = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
ACCOUNT_OF = "system:serviceaccount:"


@dataclass(frozen=True, slots=True)
class _Session:
    name: str
    token: str
    user: str
    expires: float


class TokenAuthenticator:
    """Callers by their tokens. Used by any thread."""

    def __init__(self, *, server: str, pool: PoolManager, csrf: Csrf, clock: Callable[[], float] = time.time) -> None:
        """`server` is the API server's URL, `pool` its connections, which prove nothing about who asks."""
        self._server, self._pool, self._csrf, self._clock = server, pool, csrf, clock
        self._cipher = Fernet(Fernet.generate_key())
        self._ended: dict[str, float] = {}

    def caller(self, request: Request) -> Caller | None:
        """By the header, else by the cookie."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and _is_token(token):
            expires = _expiry(token)
            if expires is not None and expires <= self._clock():
                return None
            return self._caller(_Session(digest(token), token, "", expires or self._clock() + LIFE_SECONDS))
        session = self._session(request)
        return self._caller(session, can_leave=True) if session else None

    def unknown(self, request: Request) -> Response:
        """To the login, and back to where he was going."""
        if request.method != "GET":
            return notice("You are not logged in any more", "Nothing was done. Log in, and do it again.", 401)
        going = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        login = f"/login?then={quote(going)}"
        # A link from elsewhere came without the cookie: the way over the login finds out whether there is one.
        if request.headers.get("sec-fetch-site") == "cross-site":
            return passing_on(login)
        return RedirectResponse(login, 303)

    def routes(self) -> list[Route]:
        """In, and out."""
        return [
            Route("/login", self._show, methods=["GET"]),
            Route("/login", self._login, methods=["POST"]),
            Route("/logout", self._logout, methods=["POST"]),
        ]

    async def _show(self, request: Request) -> Response:
        then = _then(request.query_params.get("then", ""))
        caller = self.caller(request)
        if caller and not await to_thread.run_sync(_trouble, caller.cluster):
            return RedirectResponse(then, 303)
        return login_page(then)

    async def _login(self, request: Request) -> Response:
        form = await form_of(request)
        then, token = _then(form.get("then", "")), form.get("token", "").strip()
        if not _from_here(request):
            return login_page(then, "This form was not sent by this page. Open it over https, and try again.", 403)
        if not _is_token(token):
            return login_page(then, "This is no token: paste it whole, without spaces in it.", 400)
        session = _Session(secrets.token_urlsafe(16), token, "", self._clock() + LIFE_SECONDS)
        cluster = self._caller(session).cluster
        try:
            user = await to_thread.run_sync(_user, cluster)
        except UnknownCallerError:
            return login_page(then, "The cluster does not know this token, or it has expired: get another one.", 401)
        except OarlockError as error:
            return login_page(then, f"Nobody can say whose token this is: {error}", 502)
        expires = min(session.expires, _expiry(token) or session.expires)
        response = RedirectResponse(then, 303)
        self._keep(request, response, _Session(session.name, token, user, expires))
        return response

    async def _logout(self, request: Request) -> Response:
        form = await form_of(request)
        session = self._session(request)
        if session and not self._csrf.fits(form.get(Csrf.FIELD, ""), session.name):
            raise ForbiddenError("This form is not from your session: you are still logged in. Reload the page.")
        if session:
            now = self._clock()
            self._ended = {name: until for name, until in self._ended.items() if until > now}
            if len(self._ended) < MOST_ENDED:
                self._ended[session.name] = session.expires
        response = RedirectResponse("/login", 303, {"clear-site-data": '"cache"'})  # pictures, for whoever comes next
        self._keep(request, response, None)
        return response

    def _caller(self, session: _Session, *, can_leave: bool = False) -> Caller:
        cluster = Cluster(Plain(self._server, self._pool, session.token), namespace="default", where="the cluster")
        account = session.user.removeprefix(ACCOUNT_OF) if session.user.startswith(ACCOUNT_OF) else ""
        return Caller(
            cluster=cluster,
            identity=digest(session.token),
            session=session.name,
            name=session.user,
            namespace=account.partition(":")[0] or None,
            expires=session.expires,
            can_leave=can_leave,
        )

    def _session(self, request: Request) -> _Session | None:
        name = _cookie(request)
        sealed = "".join(request.cookies.get(f"{name}-{piece}", "") for piece in range(MOST_PIECES))
        try:
            told = json.loads(self._cipher.decrypt_at_time(sealed.encode(), LIFE_SECONDS, int(self._clock())))
        except (InvalidToken, ValueError):
            return None
        session = _Session(**told)
        return session if session.expires > self._clock() and session.name not in self._ended else None

    def _keep(self, request: Request, response: Response, session: _Session | None) -> None:
        """Have the browser keep a session, or none."""
        name, secure = _cookie(request), _is_secure(request)
        sealed = ""
        if session:
            told = {"name": session.name, "token": session.token, "user": session.user, "expires": session.expires}
            sealed = self._cipher.encrypt_at_time(json.dumps(told).encode(), int(self._clock())).decode()
        for place in range(MOST_PIECES):
            piece = sealed[place * PIECE : (place + 1) * PIECE]
            age = max(int(session.expires - self._clock()), 0) if session and piece else 0
            if piece or f"{name}-{place}" in request.cookies:
                response.set_cookie(
                    f"{name}-{place}", piece, max_age=age, httponly=True, samesite="strict", secure=secure
                )


def _user(cluster: Cluster) -> str:
    """Who the cluster says that this is. Raises UnknownCallerError where it does not know him, and OarlockError."""
    try:
        told = cluster.create(WHO, {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"})
    except UnknownCallerError:
        raise
    except ForbiddenError:
        return ""  # known, but not told his name
    return str(part(part(told, "status"), "userInfo").get("username") or "")[:200]


def _trouble(cluster: Cluster) -> str:
    try:
        _user(cluster)
    except OarlockError as error:
        return str(error)
    return ""


def _is_token(token: str) -> bool:
    return 0 < len(token) <= MOST_TOKEN and token.isascii() and token.isprintable() and " " not in token


def _expiry(token: str) -> float | None:
    """When a JWT says that it ends, in seconds since 1970; the API server is who judges it."""
    parts = token.split(".")
    try:
        told: Any = json.loads(base64.urlsafe_b64decode(parts[1] + "==")) if len(parts) == 3 else None
    except (ValueError, RecursionError):
        return None
    return number(told.get("exp")) if isinstance(told, Mapping) else None


def _then(address: str) -> str:
    return address if is_ours(address) and not address.startswith(("/login", "/live/")) else "/"


def _cookie(request: Request) -> str:
    return "__Host-oarlock" if _is_secure(request) else "oarlock"


def _is_secure(request: Request) -> bool:
    """Whether cookies are for https alone: always, but for who has forwarded a port to his own machine."""
    return host_name(request.headers.get("host", "")) not in LOOPBACK


def _from_here(request: Request) -> bool:
    """Whether a browser says that a form came from our own page. There is no session yet that a token could be bound to."""
    if site := request.headers.get("sec-fetch-site"):
        return site == "same-origin"
    origin = request.headers.get("origin", "")
    return origin.partition("://")[2] == request.headers.get("host", "-")
