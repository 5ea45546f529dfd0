"""Requests to the API server and endless watches of it, as its administrator."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import aiohttp

from oarlock_local.api import credentials

Json = dict[str, Any]
MERGE = "application/merge-patch+json"
GROUP = "/apis/oarlock.dev/v1alpha1"
NODES = "/api/v1/nodes"
GONE = 410
AWAY = {500, 503, 504}
"""Answers of a server that is being started or ended."""
REFUSALS = {403, 404, 409, 422, 429}
"""Answers that chance brings about: the object is gone or another, a budget says no, a server is not quite up."""


def at(metadata: Json, kind: str) -> str:
    """The path of a namespaced object; `kind` is its plural."""
    root = GROUP if kind == "trainingjobs" else "/api/v1"
    return f"{root}/namespaces/{metadata['namespace']}/{kind}/{metadata['name']}"


class Client:
    """Connections to one API server."""

    def __init__(self, kubeconfig: Path) -> None:
        self._server, self._tls = credentials(kubeconfig)
        endless = aiohttp.ClientTimeout(total=None, sock_connect=10)
        self._http = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, ssl=self._tls), timeout=endless)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.close()

    async def call(self, method: str, path: str, body: Any = None, *, content: str = "application/json") -> Json | None:
        """One request; None where it was refused by what happened meanwhile. Raises RuntimeError otherwise.

        Repeated while the server is away, so that a step may be done twice.
        """
        data = None if body is None else json.dumps(body).encode()
        address, headers = self._server + path, {"Content-Type": content}
        while True:
            try:
                async with self._http.request(method, address, data=data, headers=headers) as got:
                    text = await got.read()
            except aiohttp.ClientError:
                await asyncio.sleep(0.2)
                continue
            if got.status in AWAY:
                await asyncio.sleep(0.2)
                continue
            if got.status in REFUSALS:
                return None
            if got.status >= 400:
                raise RuntimeError(f"{method} {path}: {got.status}: {text[:500].decode()}")
            answer: Json = json.loads(text)
            return answer

    async def merge(self, path: str, body: Json) -> Json | None:
        """A merge patch."""
        return await self.call("PATCH", path, body, content=MERGE)

    async def watch(self, path: str) -> AsyncIterator[Json]:
        """What there is, as ADDED, then every change. Raises RuntimeError where the server has forgotten our place.

        Nothing may be missed, because what is missed is not judged: a run with a hole in its history is worth nothing.
        """
        listed = await self.call("GET", path)
        if listed is None:
            raise RuntimeError(f"{path} is not served")
        for item in listed["items"]:
            yield {"type": "ADDED", "object": item}
        version = listed["metadata"]["resourceVersion"]
        while True:
            query = f"watch=1&allowWatchBookmarks=true&resourceVersion={version}"
            # Where the server is being started anew, nobody answers, or it is not ready.
            with suppress(aiohttp.ClientError):
                async with self._http.get(f"{self._server}{path}?{query}") as answer:
                    if answer.status == GONE:
                        raise RuntimeError(f"watch of {path}: {await answer.text()}")
                    answer.raise_for_status()
                    async for event in _lines(answer.content):
                        if event["type"] == "ERROR":
                            raise RuntimeError(f"watch of {path}: {event['object']}")
                        version = event["object"]["metadata"]["resourceVersion"]
                        yield event
            await asyncio.sleep(0.2)


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[Json]:
    pending = b""
    async for chunk in content.iter_any():
        *lines, pending = (pending + chunk).split(b"\n")
        for line in lines:
            yield json.loads(line)
