"""The one who asks, and how he is found out."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Protocol

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from oarlock.cluster import Cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """`cluster` makes requests by his credentials; `identity` is a digest of them, the same for the same credentials.

    `session` is what his CSRF tokens are bound to. `expires` is in seconds since 1970; None where the server's end is his.
    `namespace` is his own, where that is known. `can_leave`: whether he has logged in here, and can log out.
    """

    cluster: Cluster
    identity: str
    session: str
    name: str = ""
    namespace: str | None = None
    expires: float | None = None
    can_leave: bool = False

    @property
    def person(self) -> str:
        """Whose share of what is bounded this counts for; where no name is known, that of these credentials."""
        return f"user {self.name}" if self.name else self.identity


class Authenticator(Protocol):
    """By the printed link (link.py), or by a token (token.py)."""

    def caller(self, request: Request) -> Caller | None:
        """Who asks; None where nobody knows."""

    def unknown(self, request: Request) -> Response:
        """What a request of nobody known gets; also after the cluster did not know the caller any more."""

    def routes(self) -> list[Route]:
        """Where one comes in, and goes."""


def digest(secret: str) -> str:
    """A name for credentials that does not tell them."""
    return hashlib.sha256(secret.encode()).hexdigest()
