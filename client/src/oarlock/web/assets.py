"""Styles, scripts and pictures of our own, read once. Addresses have a digest of all, so they may be kept for ever."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

KINDS = {
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
    ".txt": "text/plain",
}


@cache
def assets() -> dict[str, tuple[bytes, str]]:
    """Name -> content and its type. The report's style is the page's, too."""
    found = {"report.css": files("oarlock.report").joinpath("style.css")}
    found |= {one.name: one for one in files("oarlock.web").joinpath("static").iterdir()}
    known = {name: KINDS.get(name[name.rfind(".") :]) for name in found}
    return {name: (found[name].read_bytes(), kind) for name, kind in sorted(known.items()) if kind}


@cache
def _digest() -> str:
    told = hashlib.sha256()
    for name, (content, _) in assets().items():
        told.update(f"{name} {len(content)}\n".encode() + content)
    return told.hexdigest()[:12]


def asset(name: str) -> str:
    """The address of a file in static/."""
    return f"/static/{_digest()}/{name}"


async def send(request: Request) -> Response:
    """GET /static/{digest}/{name}."""
    found = assets().get(request.path_params["name"])
    if found is None:
        return PlainTextResponse("there is no such file", 404)
    content, kind = found
    kept = "public, max-age=31536000, immutable" if request.path_params["digest"] == _digest() else "no-store"
    return Response(content, media_type=kind, headers={"cache-control": kept})
