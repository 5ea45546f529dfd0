"""What every request passes before anybody answers, and what every answer has: against other sites, and against too much.

The page is asked by browsers that visit other sites, too. The Host header has to be a name of ours, so that no foreign name
can be led here (DNS rebinding); what changes something in the cluster needs a token that only our own pages have; nothing is
loaded from elsewhere, and nobody may frame us.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
from collections.abc import Mapping
from urllib.parse import parse_qsl, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from oarlock.errors import RefusedError
from oarlock.web.drawn.plain import notice

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
MOST_ADDRESS, MOST_FORM, MOST_FIELDS = 4096, 64 * 1024, 64
"""Bytes of path and query; bytes and fields of a form."""
FORM_SECONDS = 20.0
"""Within which a form comes."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; font-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
ALIVE = "/healthz"
"""What the kubelet asks, by the pod's own address."""


class Guard:
    """Around the whole application."""

    def __init__(self, app: ASGIApp, hosts: frozenset[str]) -> None:
        """`hosts`: names besides the loopback's, without a port."""
        self._app, self._hosts = app, LOOPBACK | hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, or the server's start and end."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("cache-control", "no-store")
            await send(message)

        refusal = self._refusal(scope)
        answer: ASGIApp = notice(*refusal) if refusal else self._app
        await answer(scope, receive, guarded)

    def _refusal(self, scope: Scope) -> tuple[str, str, int] | None:
        headers = Headers(scope=scope)
        if len(scope.get("raw_path") or b"") + len(scope["query_string"]) > MOST_ADDRESS:
            return "This address is too long", f"It has more than {MOST_ADDRESS} bytes: go back, and ask for less.", 414
        host = host_name(headers.get("host", ""))
        if host not in self._hosts and scope["path"] != ALIVE:
            words = f"This server is not called {host[:80] or 'that'}: open it by a name that it was started with."
            return "This is not the place", words, 421
        if scope["method"] not in {"GET", "HEAD"} and headers.get("sec-fetch-site", "same-origin") != "same-origin":
            return "This came from another site", "Nothing was done. Open the page itself, and do it there.", 403
        return None


def host_name(host: str) -> str:
    """The name in a Host header, without its port; empty where it is none."""
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


def is_ours(address: str) -> bool:
    """Whether it is a path here, and can lead nowhere else."""
    return address.startswith("/") and not address.startswith("//") and "\\" not in address and address.isprintable()


async def form_of(request: Request) -> Mapping[str, str]:
    """The fields of an urlencoded form; of two with one name the last. Raises RefusedError beyond the bounds."""
    body = bytearray()
    try:
        async with asyncio.timeout(FORM_SECONDS):
            async for part in request.stream():
                body += part
                if len(body) > MOST_FORM:
                    raise RefusedError(f"the form has more than {MOST_FORM >> 10} KiB: send less", 413)
    except TimeoutError:
        raise RefusedError(f"the form did not come within {FORM_SECONDS:.0f} s: send it again", 408) from None
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=MOST_FIELDS))
    except ValueError as error:
        raise RefusedError(f"this is no form that the page has sent: {error}", 400) from error


class Csrf:
    """Tokens for forms, each for one session; another one for each form, so that no two pages compress alike."""

    FIELD = "csrf"

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)

    def token(self, session: str) -> str:
        """For a form that this session is shown."""
        salt = secrets.token_hex(8)
        return f"{salt}.{self._mark(salt, session)}"

    def fits(self, token: str, session: str) -> bool:
        """Whether this session was given it."""
        salt, _, mark = token.partition(".")
        return hmac.compare_digest(mark.encode(), self._mark(salt, session).encode())

    def _mark(self, salt: str, session: str) -> str:
        return hmac.digest(self._key, f"{salt}.{session}".encode(), "sha256").hex()
