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
        """What there is, as ADDED, then every change, in the order of resource versions.

        A server that was started anew has forgotten the last changes. Then what there is is told once more, as `late`: what
        is gone first, then the rest as it changed last.
        """
        known: dict[str, Json] | None = None
        while True:
            listed = await self.call("GET", path)
            if listed is None:
                raise RuntimeError(f"{path} is not served")
            version = listed["metadata"]["resourceVersion"]
            late = known is not None
            for event in _news(known or {}, listed["items"], version):
                yield {**event, "late": late}
            known = {item["metadata"]["uid"]: item for item in listed["items"]}
            async for event in self._follow(path, version):
                metadata = event["object"]["metadata"]
                if event["type"] == "DELETED":
                    known.pop(metadata["uid"], None)
                elif event["type"] != "BOOKMARK":
                    known[metadata["uid"]] = event["object"]
                yield event

    async def _follow(self, path: str, version: str) -> AsyncIterator[Json]:
        """Changes since a version, until the server does not know it any more."""
        while True:
            query = f"watch=1&allowWatchBookmarks=true&resourceVersion={version}"
            # Where the server is being started anew, nobody answers, or it is not ready.
            with suppress(aiohttp.ClientError):
                async with self._http.get(f"{self._server}{path}?{query}") as answer:
                    if answer.status == GONE:
                        return
                    answer.raise_for_status()
                    async for event in _lines(answer.content):
                        if event["type"] == "ERROR":
                            if event["object"].get("code") == GONE:
                                return
                            raise RuntimeError(f"watch of {path}: {event['object']}")
                        version = event["object"]["metadata"]["resourceVersion"]
                        yield event
            await asyncio.sleep(0.2)


def _news(known: dict[str, Json], items: list[Json], version: str) -> list[Json]:
    """What a list tells to somebody who knows of those objects."""
    there = {item["metadata"]["uid"]: item for item in items}
    gone = [body for uid, body in known.items() if uid not in there]
    for body in gone:
        body["metadata"]["resourceVersion"] = version
    by_version = sorted(items, key=lambda item: int(item["metadata"]["resourceVersion"]))
    told = [{"type": "DELETED", "object": body} for body in gone]
    told += [
        {"type": "MODIFIED" if item["metadata"]["uid"] in known else "ADDED", "object": item} for item in by_version
    ]
    return told


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[Json]:
    pending = b""
    async for chunk in content.iter_any():
        *lines, pending = (pending + chunk).split(b"\n")
        for line in lines:
            yield json.loads(line)
