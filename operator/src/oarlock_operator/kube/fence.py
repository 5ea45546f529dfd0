"""No write leaves a process that may not act.

Asked as a request is handed to the network, behind every queue and pause: a process that was frozen on its way there writes
nothing when it wakes and another may work. Free of it is what decides nothing about jobs: the Lease itself, Events, the
question what one's rights are, and Secrets with keys, which are made once, whoever makes them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import aiohttp

_UNFENCED = re.compile(
    r"/api/v1/namespaces/[^/]+/(events|secrets)"
    r"|/apis/coordination\.k8s\.io/v1/namespaces/[^/]+/leases(/[^/]+)?"
    r"|/apis/authorization\.k8s\.io/v1/selfsubjectaccessreviews"
)


class Fenced(aiohttp.ClientError):
    """A write was not sent, because this process may not act."""


def fenced_requests(may_act: Callable[[], bool], *, base: str) -> type[aiohttp.ClientRequest]:
    """Requests that ask `may_act` once they have a connection, as the last thing before they are sent.

    `base` is the path in the API server's own address, as behind a gateway for several clusters.
    """

    class FencedRequest(aiohttp.ClientRequest):
        async def send(self, conn: Any) -> aiohttp.ClientResponse:
            free = self.method == "GET" or _UNFENCED.fullmatch(self.url.path.removeprefix(base))
            if not free and not may_act():
                raise Fenced("not sent: this process does not hold the Lease, another may work now")
            return await super().send(conn)

    return FencedRequest
