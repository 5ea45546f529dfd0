"""A laptop: who has the link that was printed is the user of the kubeconfig, as with Jupyter's.

Other users of the machine reach the port, too, and any page in the browser can send requests to it. The link's key keeps out
the first; a cookie that is not sent for other sites, and the Host header (guards.py), keep out the others.
"""

from __future__ import annotations

import secrets

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from oarlock.cluster import Cluster
from oarlock.web.access.caller import Caller
from oarlock.web.drawn.plain import notice, passing_on


class LinkAuthenticator:
    """One caller, for as long as the server runs."""

    def __init__(self, cluster: Cluster, *, port: int) -> None:
        """`port` is the server's: cookies of a host are those of all its ports."""
        self._caller = Caller(cluster=cluster, identity="kubeconfig", session=secrets.token_urlsafe(32))
        self._cookie = f"oarlock-{port}"
        self._key = secrets.token_urlsafe(32)

    @property
    def link(self) -> str:
        """The path, with the key, that lets one in."""
        return f"/enter?key={self._key}"

    def caller(self, request: Request) -> Caller | None:
        """Whoever has the cookie."""
        given = request.cookies.get(self._cookie, "")
        return self._caller if secrets.compare_digest(given.encode(), self._caller.session.encode()) else None

    def unknown(self, request: Request) -> Response:
        """Nothing can be done here but to follow the link."""
        if self.caller(request):
            words = "The cluster does not know the user of the kubeconfig any more: log in there again, and start anew."
        else:
            words = "Open the link that `oarlock web` has printed: it has a key that lets you in."
        return notice("Who are you?", words, status=401)

    def routes(self) -> list[Route]:
        """The link's."""
        return [Route("/enter", self._enter)]

    async def _enter(self, request: Request) -> Response:
        given = request.query_params.get("key", "")
        if not secrets.compare_digest(given.encode(), self._key.encode()):
            return notice("Who are you?", "This is not the link that `oarlock web` has printed last.", status=401)
        # A redirect would go on without the cookie where the link stood on another site: who sets out anew has it.
        response = passing_on("/")
        response.set_cookie(self._cookie, self._caller.session, httponly=True, samesite="strict")
        return response
