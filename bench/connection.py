"""Requests to the API server and watches of it, as cheap as plain JSON over HTTPS gets.

The floor, the watch and the measuring program go through it. At most `parallel` requests are under way at a time;
watches do not count.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import aiohttp

from oarlock_api.contract.names import API_VERSION, PLURAL
from oarlock_local.api import credentials

Json = dict[str, Any]
MERGE = "application/merge-patch+json"
CORE = "/api/v1/namespaces/default"
JOBS = f"/apis/{API_VERSION}/namespaces/default/{PLURAL}"
GONE = 410


class RefusedError(Exception):
    """The API server said no."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Connection:
    """Connections to one API server, as the kubeconfig's user."""

    def __init__(self, kubeconfig: Path, *, parallel: int = 16) -> None:
        self._server, self._tls = credentials(kubeconfig)
        self._requests = self._session(parallel)
        self._watches = self._session(0)
        self.resumed = 0
        """How often the API server ended a watch, which then went on where it had been."""

    def _session(self, limit: int) -> aiohttp.ClientSession:
        endless = aiohttp.ClientTimeout(total=None, sock_connect=10)
        return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=limit, ssl=self._tls), timeout=endless)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._requests.close()
        await self._watches.close()

    async def call(self, method: str, path: str, body: Any = None, *, content: str = "application/json") -> bytes:
        """One request; the answer as it came. Raises RefusedError."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Content-Type": content, "Accept": "application/json"}
        async with self._requests.request(method, self._server + path, data=data, headers=headers) as answer:
            text = await answer.read()
            if answer.status >= 400:
                raise RefusedError(answer.status, f"{method} {path}: {answer.status}: {text[:500].decode()}")
            return text

    async def find(self, path: str) -> Any:
        """An object or a list; None where there is none, or not yet: a new kind answers 429 for a moment."""
        try:
            return json.loads(await self.call("GET", path))
        except RefusedError as error:
            if error.status in (404, 429):
                return None
            raise

    async def watch(self, path: str, selector: str = "") -> AsyncIterator[tuple[float, Json]]:
        """What there is, then every change, for ever, each with the time.monotonic() at which it arrived.

        A busy server drops watches, and soon forgets where they had been. What was missed meanwhile is told late, but it
        is told: a deleted object by its metadata alone.
        """
        known: dict[str, Json] = {}
        version = ""
        while True:
            if not version:
                listed = json.loads(await self.call("GET", f"{path}?labelSelector={selector}"))
                version = listed["metadata"]["resourceVersion"]
                for event in _news(known, listed["items"]):
                    yield time.monotonic(), event
            async for arrived, event in self._follow(path, selector, version):
                if event["type"] == "ERROR":
                    version = _forgotten(path, event["object"])
                    break
                metadata = event["object"]["metadata"]
                version = metadata["resourceVersion"]
                if event["type"] == "BOOKMARK":
                    continue
                known[metadata["uid"]] = metadata
                if event["type"] == "DELETED":
                    del known[metadata["uid"]]
                yield arrived, event
            self.resumed += 1

    async def _follow(self, path: str, selector: str, version: str) -> AsyncIterator[tuple[float, Json]]:
        query = f"watch=1&allowWatchBookmarks=true&labelSelector={selector}&resourceVersion={version}"
        async with self._watches.get(f"{self._server}{path}?{query}") as answer:
            if answer.status == GONE:
                yield time.monotonic(), {"type": "ERROR", "object": {"code": GONE}}
            elif answer.status >= 400:
                raise RefusedError(answer.status, f"watch {path}: {(await answer.text())[:500]}")
            # A stream that is cut off is resumed like one that ends.
            with suppress(aiohttp.ClientPayloadError):
                async for arrived, event in _events(answer.content):
                    yield arrived, event


def _news(known: dict[str, Json], items: Sequence[Json]) -> Iterator[Json]:
    """What a list tells to somebody who knows of those objects; `known` is what there is then."""
    there = {item["metadata"]["uid"]: item["metadata"] for item in items}
    for uid in known.keys() - there.keys():
        yield {"type": "DELETED", "object": {"metadata": known[uid], "spec": {}, "status": {}}}
    for item in items:
        yield {"type": "MODIFIED" if item["metadata"]["uid"] in known else "ADDED", "object": item}
    known.clear()
    known.update(there)


def _forgotten(path: str, status: Json) -> str:
    """No version: where the server no longer knows ours, the watch begins anew. Raises RefusedError otherwise."""
    if status.get("code") != GONE:
        raise RefusedError(status.get("code", 0), f"watch {path}: {status}")
    return ""


async def until(look: Callable[[], Awaitable[bool]], *, every: float = 0.1) -> None:
    """Ask again and again until the answer is yes."""
    while not await look():  # noqa: ASYNC110 - what is waited for is in other processes
        await asyncio.sleep(every)


async def _events(content: aiohttp.StreamReader) -> AsyncIterator[tuple[float, Json]]:
    pending = b""
    async for chunk in content.iter_any():
        # One time for all that arrived at once: taking them apart must not count.
        arrived = time.monotonic()
        *lines, pending = (pending + chunk).split(b"\n")
        for line in lines:
            yield arrived, json.loads(line)
